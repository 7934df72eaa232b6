package relay

import (
	"context"
	"slices"
	"time"
)

// Settling. States come in, and go out to the settlers in batches, fenced; what is written is
// finished. What must hold: outcomes of one key are written in their order, what isn't
// written is written again, and what is of a lost lane is written by nobody.

// settlers is the number of settlements under way at once at most, if there is much
// to write back and the store gains by it. Each has lanes of its own, so that the
// outcomes of a key are written in their order: what a successor repeats after a
// crash then ends with the key's last message. What fits into one settlement is
// one: two small ones cost the database more, and each other.
const settlers = 2

// settleBatch bounds the rows of one settlement.
const settleBatch = 2000

// settling is what waits to be written back: a queue for each settler's lanes.
type settling struct {
	*base
	finish  func(it *item, s *Settlement) // is told of each item whose outcome is written, or another's to write
	settles chan settleJob
	settled chan settleResult

	queues [settlers]unsettled
	atOnce int        // so many of the queues are in use
	spare  []verdicts // memory of settlements that are over

	lost bool // some of what is pending may be of a lane that was lost

	began  time.Time // of the last settlement
	urgent bool      // what is pending doesn't wait for more
	dueAt  time.Time // it does, until then

	unwritable verdicts // the database refuses them; each is tried again now and then
	trying     bool     // one of them is being tried
	tryAt      time.Time
	inARow     int // were set aside since anything was written
}

type unsettled struct {
	pending  verdicts
	inFlight int // verdicts under way
	failures int
	retryAt  time.Time

	most   int   // rows of the next settlement, while one is looked for that the database refuses; 0: no bound
	failed int   // rows of the settlement that failed last
	since  int64 // when one of so many failed first, by its clock
	alone  int   // how often a row was refused alone
}

// verdicts are items and, at the same places, what is to be written back for
// them.
type verdicts struct {
	items       []*item
	settlements []Settlement
}

func (v *verdicts) add(it *item, settlement Settlement) {
	v.items, v.settlements = append(v.items, it), append(v.settlements, settlement)
}

// moveTo takes the first n, and puts them behind others.
func (v *verdicts) moveTo(others *verdicts, n int) {
	others.items = append(others.items, v.items[:n]...)
	others.settlements = append(others.settlements, v.settlements[:n]...)
	v.cut(n)
}

// cut leaves the first n out, and keeps their memory for others, unless that is a
// lot: what waits while a database is down isn't the rule.
func (v *verdicts) cut(n int) {
	if n == len(v.items) && n > 2*settleBatch {
		*v = verdicts{}
		return
	}
	v.items, v.settlements = slices.Delete(v.items, 0, n), slices.Delete(v.settlements, 0, n)
}

// putFirst puts the first n of others before these.
func (v *verdicts) putFirst(others *verdicts, n int) {
	v.items = slices.Insert(v.items, 0, others.items[:n]...)
	v.settlements = slices.Insert(v.settlements, 0, others.settlements[:n]...)
	others.cut(n)
}

// settleJob is one call of Settle.
type settleJob struct {
	verdicts
	of    [settlers]int // so many are of each queue, one after the other
	again bool          // one that was set aside
}

type settleResult struct {
	settleJob
	counts Settled
	err    error
}

func newSettling(b *base, finish func(*item, *Settlement)) *settling {
	return &settling{
		base: b, finish: finish, atOnce: min(settlers, b.store.AtOnce().Settles),
		settles: make(chan settleJob, settlers+1), settled: make(chan settleResult, settlers+1),
	}
}

// add has an item's outcome written back.
func (s *settling) add(it *item, settlement Settlement) {
	s.queues[it.row.Lane%s.atOnce].pending.add(it, settlement)
	s.urgent = s.urgent || settlement.State != StateDone
	s.lost = s.lost || it.lost()
}

// count is the number of items whose outcome is not written back yet.
func (s *settling) count() (n int) {
	for i := range s.queues {
		n += len(s.queues[i].pending.items) + s.queues[i].inFlight
	}
	return n
}

// nextTime is when the next settlement is due that failed, or waits for more.
func (s *settling) nextTime() time.Time {
	at := s.dueAt
	if len(s.unwritable.items) > 0 {
		at = earliest(at, s.tryAt)
	}
	for i := range s.queues {
		at = earliest(at, s.queues[i].retryAt)
	}
	return at
}

// start writes back what there is: all at once, or, where that is much, each queue by
// itself. While the other queue is being written, little waits for it. Of what is only
// delivered, so many may wait for more.
func (s *settling) start(now time.Time, mayLinger func(time.Time) int) {
	s.fenceLost()
	s.tryUnwritable(now)
	var ready [settlers]bool
	waiting, flying, looking := 0, 0, false
	for i := range s.queues {
		q := &s.queues[i]
		flying += q.inFlight
		looking = looking || q.most > 0
		if ready[i] = q.inFlight == 0 && len(q.pending.items) > 0 && !now.Before(q.retryAt); ready[i] {
			waiting += len(q.pending.items)
		}
	}
	worth := settleBatch / 2 // of one queue, to be settled though the other one is under way
	if s.keeps() {
		worth /= 2 // rows that are kept take the database longer than all else does
	}
	if flying == 0 && waiting <= settlers*worth && !looking {
		// Nobody waits for a message to be marked delivered: its key goes on, and its place
		// in memory is needed only where there are many. Anything else is waited for.
		due := s.began.Add(settleLinger)
		switch linger := !s.urgent && now.Before(due) && waiting < mayLinger(now); {
		case waiting == 0:
		case linger:
			s.dueAt = due
		default:
			s.write(now, ready)
		}
		return
	}
	for i := range ready {
		if ready[i] && (flying == 0 || len(s.queues[i].pending.items) >= worth) {
			var alone [settlers]bool
			alone[i] = true
			s.write(now, alone)
		}
	}
}

// fenceLost takes out what is of lanes that were lost, without a settlement: the lane
// may be leased again, and after a failover with the same fence, which is no lease of
// what was read before.
func (s *settling) fenceLost() {
	if !s.lost {
		return
	}
	s.lost = false
	states, fenced := map[State]int{}, 0
	for i := range s.queues {
		pending := &s.queues[i].pending
		var kept verdicts
		for at, it := range pending.items {
			if !it.lost() {
				kept.add(it, pending.settlements[at])
				continue
			}
			states[pending.settlements[at].State]++
			fenced++
			s.finish(it, &pending.settlements[at])
		}
		*pending = kept
	}
	if fenced > 0 {
		s.options.Observer.Settled(Settled{Fenced: fenced}, states)
		s.warnFenced(fenced)
	}
}

func (s *settling) warnFenced(rows int) {
	s.options.Logger.Warn("relay: outcomes came after the lease was lost and changed nothing",
		"relay", s.options.Name, "rows", rows)
}

// write writes back what waits in these queues.
func (s *settling) write(now time.Time, queues [settlers]bool) {
	job := settleJob{verdicts: s.empty()}
	left := 0
	for i := range s.queues {
		q := &s.queues[i]
		if queues[i] {
			job.of[i] = min(len(q.pending.items), or(q.most, settleBatch))
			q.pending.moveTo(&job.verdicts, job.of[i])
			q.inFlight, q.retryAt = job.of[i], time.Time{}
		}
		left += len(q.pending.items)
	}
	s.began, s.dueAt, s.urgent = now, time.Time{}, s.urgent && left > 0
	s.settles <- job
}

// empty returns memory for a settlement. What memory each message needs is what
// the garbage collector has to do for it.
func (s *settling) empty() (v verdicts) {
	if n := len(s.spare); n > 0 {
		v, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	return v
}

// over takes back the memory of a settlement.
func (s *settling) over(v verdicts) {
	v.cut(len(v.items))
	if len(s.spare) < settlers {
		s.spare = append(s.spare, v)
	}
}

// settler writes batches back.
func (s *settling) settler(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-s.settles:
			s.settled <- s.writeBack(ctx, job)
		}
	}
}

func (s *settling) writeBack(ctx context.Context, job settleJob) settleResult {
	ctx, cancel := context.WithTimeout(ctx, s.operationTimeout())
	defer cancel()
	counts, err := s.store.Settle(ctx, s.options.Name, s.keeps(), job.settlements)
	s.reached(err)
	return settleResult{job, counts, err}
}

// settlePause bounds the wait before outcomes are written back again.
var settlePause = Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}

// after takes out of memory what is written, and says whether some of it was fenced.
// What is not is written again: the database may have taken it, and then nothing happens.
func (s *settling) after(result settleResult) (fenced bool) {
	if result.again {
		s.afterTry(&result)
		return result.counts.Fenced > 0
	}
	if result.err != nil {
		s.settleAgain(result)
		return false
	}
	for i, n := range result.of {
		if n > 0 {
			s.queues[i].wrote()
		}
	}
	s.inARow = 0
	s.written(result)
	s.over(result.verdicts)
	return result.counts.Fenced > 0
}

// written takes out of memory what the database has taken.
func (s *settling) written(result settleResult) {
	states := map[State]int{}
	for i, it := range result.items {
		settlement := &result.settlements[i]
		states[settlement.State]++
		s.finish(it, settlement)
	}
	s.options.Observer.Settled(result.counts, states)
	if result.counts.Fenced > 0 {
		s.warnFenced(result.counts.Fenced)
	}
}

// settleAgain puts what could not be written before all else of its queue.
func (s *settling) settleAgain(result settleResult) {
	for i, n := range result.of {
		if n == 0 {
			continue
		}
		q := &s.queues[i]
		q.pending.putFirst(&result.verdicts, n)
		q.inFlight = 0
		q.failures++
		s.narrow(q, n, result.err)
		q.retryAt = time.Now().Add(settlePause.draw(q.failures))
	}
	s.over(result.verdicts)
	s.lost = true
	s.failed("settle", result.err)
}

// finish ends an item whose outcome is written, or is not the relay's to write any more.
func (e *engine) finish(it *item, s *Settlement) {
	it.stage = written
	for _, g := range e.guards {
		g.marked(it)
	}
	if it.queue != nil {
		it.queue.settling--
		it.queue.release(it)
	}
	e.claiming.settled(it, s)
}

const (
	// settleLinger is how long delivered messages wait, from the last
	// settlement on, to be written back together: where a few come at a time,
	// writing each alone is most of what a relay costs.
	settleLinger = 40 * time.Millisecond

	// settleFew is the number of messages that wait at most.
	settleFew = 64
)

// mayLinger is how many messages may wait. A relay that dies has its successor
// deliver them once more: so that these are no more than what was in flight, they
// are less than a batch.
func (e *engine) mayLinger(now time.Time) int {
	if e.stopping.begun || e.options.Drain || e.writesDown(now) {
		return 0
	}
	few := settleFew
	for _, q := range e.queues {
		if q.options.Sink == nil {
			continue
		}
		if q.buffered > q.options.Buffer/4 || q.bytes > q.options.BufferBytes/4 {
			return 0
		}
		few = min(few, q.options.Batch)
	}
	return few
}

// writesDown says that some guard has what is sent written down before.
func (e *engine) writesDown(now time.Time) bool {
	return slices.ContainsFunc(e.guards, func(g guard) bool { return g.writesDown(now) })
}
