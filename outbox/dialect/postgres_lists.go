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
	ids []int64 // in their order
}

// listsOf has the settlements, which are in the order of lanes and ids, in lists.
func listsOf(settlements []Settlement) (lists []idList) {
	for len(settlements) > 0 {
		n := together(settlements)
		ids := column(settlements[:n], func(s Settlement) int64 { return s.ID })
		lists, settlements = append(lists, idList{lease{settlements[0].Lane, settlements[0].Fence}, ids}), settlements[n:]
	}
	return lists
}

// together is how many of the first settlements make one list.
func together(settlements []Settlement) (n int) {
	for n = 1; n < min(len(settlements), listLength); n++ {
		before, s := &settlements[n-1], &settlements[n]
		if s.Lane != before.Lane || s.Fence != before.Fence || s.ID < before.ID || s.ID-before.ID > listGap {
			break
		}
	}
	return n
}

// lists are a FROM of lists (lane, fence, ids), ids being the text of an array.
func (a *postgresArgs) lists(lists []idList) string {
	lanes := a.lanes(column(lists, func(l idList) int { return l.lane }))
	fences := a.ids(column(lists, func(l idList) int64 { return l.fence }))
	texts := a.texts(column(lists, func(l idList) string { return postgresIDs(l.ids) }))
	return "unnest(" + lanes + ", " + fences + ", " + texts + ") AS l (lane, fence, ids)"
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
