package relay

import "time"

const (
	// settleLinger is how long delivered messages wait, from the last
	// settlement on, to be written back together: where a few come at a time,
	// writing each alone is most of what a relay costs.
	settleLinger = 40 * time.Millisecond

	// settleFew is the number of messages that wait at most.
	settleFew = 64
)

// linger says whether what is pending waits for more. Nobody waits for a message
// to be marked delivered: its key goes on, and its place in memory is needed
// only where there are many. Anything else that a settlement brings is waited for.
func (e *engine) linger(pending int, now time.Time) bool {
	due := e.settle.began.Add(settleLinger)
	if e.settle.urgent || !now.Before(due) || pending >= e.mayLinger(now) {
		return false
	}
	e.settle.dueAt = due
	return true
}

// mayLinger is how many messages may wait. A relay that dies has its successor
// deliver them once more: so that these are no more than what was in flight, they
// are less than a batch.
func (e *engine) mayLinger(now time.Time) int {
	if e.stopping.begun || e.options.Drain || e.exact || e.careful(now) {
		return 0
	}
	few := settleFew
	for _, o := range e.outlets {
		if o.options.Sink == nil {
			continue
		}
		if o.buffered > o.options.Buffer/4 || o.bytes > o.options.BufferBytes/4 {
			return 0
		}
		few = min(few, o.options.Batch)
	}
	return few
}
