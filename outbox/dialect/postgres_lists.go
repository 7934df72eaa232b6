package dialect

import (
	"slices"
	"strconv"
)

// listLength is how many rows of a lane one list of ids has at most. A list that
// isn't used to look up its ids is compared with each row between its first and
// its last, so it is short.
const listLength = 32

// idList are rows of one lane that were read under one lease, by their ids.
type idList struct {
	lease
	ids []int64 // in their order
}

// listsOf has the settlements, which are in the order of lanes, in lists.
func listsOf(settlements []Settlement) (lists []idList) {
	for len(settlements) > 0 {
		n := together(settlements)
		list := idList{lease{settlements[0].Lane, settlements[0].Fence}, column(settlements[:n], func(s Settlement) int64 { return s.ID })}
		slices.Sort(list.ids) // they are, mostly
		lists, settlements = append(lists, list), settlements[n:]
	}
	return lists
}

// together is how many of the first settlements make one list.
func together(settlements []Settlement) (n int) {
	first := &settlements[0]
	for n < min(len(settlements), listLength) && settlements[n].Lane == first.Lane && settlements[n].Fence == first.Fence {
		n++
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
