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

// delivered settles a record batch.
func (r *run) delivered(l *lane, offset int64) {
	for n, o := range delivered(l.partition, offset, len(l.chunk)) {
		r.settle(l.chunk[n], o)
	}
}

// delivered are the outcomes of a record batch. The receipts, partition and
// offset of each, are parts of one text.
func delivered(partition int, offset int64, n int) []sinks.Outcome {
	const longest = 24
	text, ends := make([]byte, 0, longest*n), make([]int, n)
	for i := range n {
		text = append(strconv.AppendInt(text, int64(partition), 10), '/')
		text = strconv.AppendInt(text, offset+int64(i), 10)
		ends[i] = len(text)
	}
	receipts, start, outcomes := string(text), 0, make([]sinks.Outcome, n)
	for i, end := range ends {
		outcomes[i], start = sinks.Ok(receipts[start:end]), end
	}
	return outcomes
}

// stop leaves alone what waits for a partition that is in trouble.
func (r *run) stop(l *lane) {
	for _, i := range l.waiting {
		r.settle(i, neighbour)
	}
	l.waiting = nil
}
