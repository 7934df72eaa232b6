package plugins

import "strings"

// texts makes strings of bytes, many from one block of memory. The blocks are
// small, since whoever keeps a string keeps its block.
type texts struct {
	block strings.Builder
	most  int // bytes of a block
}

const textBlock = 1 << 10

func (t *texts) of(b []byte) string {
	if len(b) > t.block.Cap()-t.block.Len() {
		if len(b) > t.most/4 {
			return string(b)
		}
		t.block.Reset()
		t.block.Grow(t.most)
	}
	before := t.block.Len()
	t.block.Write(b)
	return t.block.String()[before:]
}

// again is of, save that what was there before is taken once more if it is the
// same.
func (t *texts) again(before string, b []byte) string {
	if string(b) == before {
		return before
	}
	return t.of(b)
}
