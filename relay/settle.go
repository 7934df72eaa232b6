package relay

import (
	"context"
	"time"
)

// settlers is the number of settlements under way at once: while one commits,
// the next is on its way.
const settlers = 2

// settleBatch bounds the rows of one settlement.
const settleBatch = 1000

// settling is what waits to be written back.
type settling struct {
	pending  []verdict
	flying   int // verdicts under way
	busy     int // settlements under way
	failures int
	retryAt  time.Time
}

// verdict is an item and what is to be written back for it.
type verdict struct {
	item       *item
	settlement Settlement
}

func (s *settling) add(it *item, settlement Settlement) {
	s.pending = append(s.pending, verdict{it, settlement})
}

// count is the number of items whose outcome is not written back yet.
func (s *settling) count() int { return len(s.pending) + s.flying }

type settleResult struct {
	verdicts []verdict
	counts   Settled
	err      error
}

// startSettles writes back what there is: at once if nothing is under way,
// else when it is worth a round trip of its own.
func (e *engine) startSettles(now time.Time) {
	s := &e.settle
	for s.busy < settlers && len(s.pending) > 0 && !now.Before(s.retryAt) {
		if s.busy > 0 && len(s.pending) < settleBatch/4 {
			return
		}
		n := min(len(s.pending), settleBatch)
		batch := s.pending[:n:n]
		s.pending = s.pending[n:]
		s.busy++
		s.flying += n
		e.settles <- batch
	}
}

// settler writes batches back.
func (e *engine) settler(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case verdicts := <-e.settles:
			e.settled <- e.writeBack(ctx, verdicts)
		}
	}
}

func (e *engine) writeBack(ctx context.Context, verdicts []verdict) settleResult {
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	settlements := make([]Settlement, len(verdicts))
	for i, v := range verdicts {
		settlements[i] = v.settlement
	}
	counts, err := e.store.Settle(ctx, e.options.Name, e.keeps(), settlements)
	e.reached(err)
	return settleResult{verdicts, counts, err}
}

func (e *engine) keeps() bool { return e.options.Retention != KeepNothing }

// settlePause bounds the wait before outcomes are written back again.
var settlePause = Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}

// afterSettle takes out of memory what is written. What is not is written
// again: the database may have taken it, and then nothing happens.
func (e *engine) afterSettle(result settleResult) {
	s := &e.settle
	s.busy--
	s.flying -= len(result.verdicts)
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
	if it.outlet != nil {
		it.outlet.release(it)
	}
	if e.read.busy {
		e.read.ghosts = append(e.read.ghosts, it)
		return
	}
	e.bury(it)
}
