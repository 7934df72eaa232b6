package kafka

import (
	"strconv"

	"github.com/rowrelay/rowrelay/sinks"
)

// take notes an answer, and puts back what is to go again.
func (r *run) take(a answer) {
	l := a.lane
	l.busy = false
	r.slowest = max(r.slowest, a.took)
	if a.outcome.Result == sinks.Delivered && !a.again {
		r.delivered(l, a.offset)
		return
	}
	var again []int
	for n, i := range l.chunk {
		if rejected, isRejected := a.rejected[n]; isRejected {
			r.settle(i, rejected)
		} else if a.again {
			again = append(again, i)
		} else {
			r.settle(i, a.outcome)
		}
	}
	l.waiting = append(again, l.waiting...)
	if a.smaller {
		l.most = max(1, len(l.chunk)/2)
	}
	if a.outcome.Result == sinks.Unavailable {
		r.stop(l)
	}
}

// delivered settles a record batch. The receipts, partition and offset of each,
// are parts of one text.
func (r *run) delivered(l *lane, offset int64) {
	const longest = 24
	text, ends := make([]byte, 0, longest*len(l.chunk)), make([]int, len(l.chunk))
	for n := range l.chunk {
		text = append(strconv.AppendInt(text, int64(l.partition), 10), '/')
		text = strconv.AppendInt(text, offset+int64(n), 10)
		ends[n] = len(text)
	}
	receipts, start := string(text), 0
	for n, i := range l.chunk {
		r.settle(i, sinks.Ok(receipts[start:ends[n]]))
		start = ends[n]
	}
}

// stop leaves alone what waits for a partition that is in trouble.
func (r *run) stop(l *lane) {
	for _, i := range l.waiting {
		r.settle(i, neighbour)
	}
	l.waiting = nil
}
