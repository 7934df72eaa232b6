package dialect

import "strconv"

// The rows that lie between the first and the last row of a list are looked at,
// and compared with each id of it: a list is short, and what lies far from the
// others has one of its own. A lane has about each 64th id.
const (
	listLength = 32
	listGap    = 512 // ids
)

// idList are rows of one lane that were read under one lease, by their ids.
type idList struct {
	lease
	ids    []int64 // in their order, each once
	before int     // how many are in the lists before it
}

// listsOf has the settlements, which are in the order of lanes and ids, in lists.
func listsOf(settlements []Settlement) (lists []idList) {
	for before := 0; before < len(settlements); {
		first, n := &settlements[before], together(settlements[before:])
		ids := column(settlements[before:before+n], func(s Settlement) int64 { return s.ID })
		lists, before = append(lists, idList{lease{first.Lane, first.Fence}, ids, before}), before+n
	}
	return lists
}

// together is how many of the first settlements make one list.
func together(settlements []Settlement) (n int) {
	for n = 1; n < min(len(settlements), listLength); n++ {
		before, s := &settlements[n-1], &settlements[n]
		if s.Lane != before.Lane || s.Fence != before.Fence || s.ID <= before.ID || s.ID-before.ID > listGap {
			break
		}
	}
	return n
}

// lists are a FROM of lists (lane, fence, ids, before), ids being the text of an array.
func (a *postgresArgs) lists(lists []idList) string {
	lanes := a.lanes(column(lists, func(l idList) int { return l.lane }))
	fences := a.ids(column(lists, func(l idList) int64 { return l.fence }))
	texts := a.texts(column(lists, func(l idList) string { return postgresIDs(l.ids) }))
	before := a.add(postgresArray(lists, func(l idList) string { return strconv.Itoa(l.before) }), "integer[]")
	return "unnest(" + lanes + ", " + fences + ", " + texts + ", " + before + ") AS l (lane, fence, ids, before)"
}

// messageBytes are the messages' ids, of 16 bytes each, one after the other.
func messageBytes(settlements []Settlement) []byte {
	const digits = "\x00\x02\x04\x06\x09\x0b\x0e\x10\x13\x15\x18\x1a\x1c\x1e\x20\x22" // the first of each two
	bytes := make([]byte, 0, len(digits)*len(settlements))
	for i := range settlements {
		id := settlements[i].MessageID
		for _, at := range []byte(digits) {
			bytes = append(bytes, hexDigit(id[at])<<4|hexDigit(id[at+1]))
		}
	}
	return bytes
}

func hexDigit(c byte) byte { return c&0xf + 9*(c>>6) }

// postgresMessageIDs is the text of an array. The ids need no quotes.
func postgresMessageIDs(settlements []Settlement) string {
	text := make([]byte, 0, 2+37*len(settlements))
	separator := byte('{')
	for i := range settlements {
		text = append(append(text, separator), settlements[i].MessageID...)
		separator = ','
	}
	return string(append(text, '}'))
}

// postgresIDs is the text of an array.
func postgresIDs(ids []int64) string {
	text := make([]byte, 0, 2+8*len(ids))
	separator := byte('{')
	for _, id := range ids {
		text = strconv.AppendInt(append(text, separator), id, 10)
		separator = ','
	}
	if len(ids) == 0 {
		text = append(text, separator)
	}
	return string(append(text, '}'))
}
