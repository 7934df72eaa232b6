package sqlstore

import "slices"

// checkpoint: a transaction with a higher number than xid has ids above id only.
type checkpoint struct {
	xid uint64
	id  int64
}

// checkpoints ascend in both. Dropping one, or not making one, makes floors
// lower, which costs a longer way to read again and nothing else.
type checkpoints []checkpoint

// maxCheckpoints bounds the list; the older half is then thinned.
const maxCheckpoints = 512

// add makes a checkpoint.
func (c *checkpoints) add(xid uint64, id int64) {
	list := *c
	at, _ := slices.BinarySearchFunc(list, xid, byXID)
	if at > 0 && list[at-1].id >= id {
		return // an earlier one says more
	}
	end := at
	for end < len(list) && list[end].id <= id {
		end++ // says less than this one
	}
	*c = slices.Replace(list, at, end, checkpoint{xid, id}).thinned()
}

func byXID(c checkpoint, xid uint64) int {
	switch {
	case c.xid < xid:
		return -1
	case c.xid > xid:
		return 1
	default:
		return 0
	}
}

// thinned drops every other one of the older half, so that the list is the
// sparser the older.
func (c checkpoints) thinned() checkpoints {
	if len(c) <= maxCheckpoints {
		return c
	}
	kept := c[:0]
	for i, each := range c {
		if i%2 == 0 || i >= maxCheckpoints/2 {
			kept = append(kept, each)
		}
	}
	return kept
}

// floor is below every id that a transaction with this number or a higher one
// can have written or will write; 0 if nothing is known.
func (c checkpoints) floor(xid uint64) int64 {
	at, _ := slices.BinarySearchFunc(c, xid, byXID)
	if at == 0 {
		return 0
	}
	return c[at-1].id
}

// highest is the highest id of all; 0 without any.
func (c checkpoints) highest() int64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1].id
}

// prune drops the checkpoints that no floor is going to come from: those before
// the one that holds for the lowest transaction that may still end.
func (c *checkpoints) prune(lowest uint64) {
	at, _ := slices.BinarySearchFunc(*c, lowest, byXID)
	if at > 1 {
		*c = slices.Delete(*c, 0, at-1)
	}
}
