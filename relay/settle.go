package relay

import (
	"context"
	"time"
)

// settlers is the number of settlements under way at once: while one commits,
// the next is on its way. Each has lanes of its own, so that the outcomes of a
// key are written in their order: what a successor repeats after a crash then
// ends with the key's last message.
const settlers = 2

// settleBatch bounds the rows of one settlement.
const settleBatch = 1000

// settling is what waits to be written back, by settler.
type settling [settlers]unsettled

type unsettled struct {
	pending  []verdict
	flying   int // verdicts under way
	failures int
	retryAt  time.Time

	began  time.Time // of the last settlement
	urgent bool      // what is pending doesn't wait for more
	dueAt  time.Time // it does, until then
}

// verdict is an item and what is to be written back for it.
type verdict struct {
	item       *item
	settlement Settlement
}

// settleJob is one call of Settle.
type settleJob struct {
	settler  int
	verdicts []verdict
}

type settleResult struct {
	settleJob
	counts Settled
	err    error
}

func (s *settling) add(it *item, settlement Settlement) {
	own := &s[it.row.Lane%settlers]
	own.pending = append(own.pending, verdict{it, settlement})
	own.urgent = own.urgent || settlement.State != StateDone
}

// count is the number of items whose outcome is not written back yet.
func (s *settling) count() (n int) {
	for i := range s {
		n += len(s[i].pending) + s[i].flying
	}
	return n
}

// nextTime is when the next settlement is due that failed, or waits for more.
func (s *settling) nextTime() (at time.Time) {
	for i := range s {
		at = earliest(at, s[i].retryAt, s[i].dueAt)
	}
	return at
}

// startSettles writes back what there is.
func (e *engine) startSettles(now time.Time) {
	for i := range e.settle {
		s := &e.settle[i]
		if s.flying > 0 || len(s.pending) == 0 || now.Before(s.retryAt) || e.linger(s, now) {
			continue
		}
		n := min(len(s.pending), settleBatch)
		batch := s.pending[:n:n]
		s.pending, s.flying, s.retryAt = s.pending[n:], n, time.Time{}
		s.began, s.urgent, s.dueAt = now, len(s.pending) > 0 && s.urgent, time.Time{}
		e.settles <- settleJob{i, batch}
	}
}

// settler writes batches back.
func (e *engine) settler(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-e.settles:
			e.settled <- e.writeBack(ctx, job)
		}
	}
}

func (e *engine) writeBack(ctx context.Context, job settleJob) settleResult {
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	settlements := make([]Settlement, len(job.verdicts))
	for i, v := range job.verdicts {
		settlements[i] = v.settlement
	}
	counts, err := e.store.Settle(ctx, e.options.Name, e.keeps(), settlements)
	e.reached(err)
	return settleResult{job, counts, err}
}

func (e *engine) keeps() bool { return e.options.Retention != KeepNothing }

// settlePause bounds the wait before outcomes are written back again.
var settlePause = Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}

// afterSettle takes out of memory what is written. What is not is written
// again: the database may have taken it, and then nothing happens.
func (e *engine) afterSettle(result settleResult) {
	s := &e.settle[result.settler]
	s.flying = 0
	if result.err != nil {
		s.pending = append(result.verdicts[:len(result.verdicts):len(result.verdicts)], s.pending...)
		s.failures++
		s.retryAt = time.Now().Add(settlePause.draw(s.failures))
		e.failed("settle", result.err)
		return
	}
	s.failures = 0
	states := map[State]int{}
	for _, v := range result.verdicts {
		states[v.settlement.State]++
		e.finish(v.item)
		e.afterState(v)
	}
	e.options.Observer.Settled(result.counts, states)
	if result.counts.Fenced > 0 {
		e.options.Logger.Warn("relay: outcomes came after the lease was lost and changed nothing",
			"relay", e.options.Name, "rows", result.counts.Fenced)
		e.lease.next = time.Now()
	}
}

// afterState does what had to wait until the state was written.
func (e *engine) afterState(v verdict) {
	it := v.item
	switch v.settlement.State {
	case StateError:
		if k := it.key; k != nil && k.held && k.holder == it.row.ID {
			e.letGo(k)
			e.goOn(k)
		}
	case StateRetry:
		e.dueAgain(time.Now().Add(v.settlement.Delay))
	}
}

// finish ends an item whose outcome is written. A read that is under way may
// bring the row back from an older snapshot, so the item is remembered until
// that is over.
func (e *engine) finish(it *item) {
	it.lane.pinned--
	delete(it.lane.tickets, it.row.ID)
	if it.outlet != nil {
		it.outlet.release(it)
	}
	if e.read.busy {
		e.read.ghosts = append(e.read.ghosts, it)
		return
	}
	e.bury(it)
}
