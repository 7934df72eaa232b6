package relay

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Settling. Workers' outcomes are collected and written in batches, each under its lane's
// fence or its claim's token. What must hold: outcomes of one key keep their order. A batch that
// fails is written again. An outcome of a lost lane changes nothing: its fence doesn't come again.

const (
	// At most this many settlements run at once; less where the store gains nothing by it.
	// Each has its own lanes, so a key's outcomes stay in order: what a successor repeats
	// after a crash then ends with the key's last message. If all of it fits into one
	// settlement, one is made: two small ones would slow the database and each other.
	settlers = 2

	// settleBatch bounds the rows of one settlement.
	settleBatch = 2000

	// settleLinger is how long delivered messages wait, from the last settlement on, to
	// be written back together: where a few come at a time, writing each alone is most of
	// what a relay costs. settleFew is the number that wait at most.
	settleLinger = 80 * time.Millisecond
	settleFew    = 64
)

// settlePause bounds the wait before outcomes are written back again.
var settlePause = Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}

// settler has outcomes written back. It keeps a list for each of the settlements that may run at once. The loop calls it, but for
// work, which runs in goroutines of its own and gives back what it has done through results.
type settler struct {
	base    *base
	jobs    chan settleJob
	results chan<- func()                               // the loop calls each
	written func(items []*item, counts storage.Settled) // called in the loop once the outcomes of items are written

	lists  [settlers]unsettled // not to be taken for the sinks' queues
	atOnce int                 // so many of the lists are in use

	began  time.Time // of the last settlement
	urgent bool      // something unwritten is no delivery, and is written at once
	dueAt  time.Time // until when deliveries wait to be written together
	proven bool      // the last settlement but for unwritable rows was written, or failed for a reason that passes

	joiner     joiner
	unwritable unwritable
}

// newSettler returns a settler that runs so many settlements at once.
func newSettler(b *base, names []string, atOnce int, results chan<- func(), written func([]*item, storage.Settled)) *settler {
	return &settler{
		base: b, jobs: make(chan settleJob, settlers+1), results: results, written: written, atOnce: min(settlers, atOnce),
		joiner: newJoiner(names), unwritable: unwritable{base: b},
	}
}

type unsettled struct {
	unwritten []*item
	inFlight  int // items whose outcomes are being written
	failures  int
	retryAt   time.Time

	most     int   // rows of the next settlement, while one is looked for that the database refuses; 0: no bound
	failed   int   // rows of the settlement that failed last
	since    int64 // when a settlement of so many rows first failed, by the clock of health
	refusals int   // how often a row was refused alone
}

// settleJob is one call of Settle.
type settleJob struct {
	items             []*item
	of                [settlers]int // so many are of each list, one after the other
	retriesUnwritable bool          // an unwritable item is tried again
}

// add has an item's outcome written back: with those of its message's other sinks, if there are any.
func (s *settler) add(it *item, outcome result) {
	it.stage, it.toWrite = inSettle, outcome
	if it.queue != nil {
		it.queue.settling++
	}
	if s.joiner.joins(it) {
		s.write(s.joiner.add(it, time.Now())...)
	} else {
		s.write(it)
	}
}

// write has the settlements of items written.
func (s *settler) write(items ...*item) {
	for _, it := range items {
		q := &s.lists[uint(it.row.Lane)%uint(s.atOnce)] // a session with the constraints off may write a lane below 0
		q.unwritten = append(q.unwritten, it)
		s.urgent = s.urgent || it.toWrite.state != storage.StateDone
	}
}

// start hands what there is to the goroutines: all at once, or, where that is much, each
// list by itself. While one list is being written, a few rows of the other one wait for it. Fewer deliveries than
// few wait for more, up to settleLinger: nobody waits for a message to be marked,
// as its key goes on, and its place in memory is needed only where there are many. Retries
// and parked messages are written at once, as their keys wait.
func (s *settler) start(now time.Time, few int) {
	s.write(s.joiner.late(now)...)
	if it := s.unwritable.next(now); it != nil {
		s.jobs <- settleJob{items: []*item{it}, retriesUnwritable: true}
	}
	var ready [settlers]bool
	waiting, inFlight, looking := 0, 0, false
	for i := range s.lists {
		q := &s.lists[i]
		inFlight += q.inFlight
		looking = looking || q.most > 0
		if ready[i] = q.inFlight == 0 && len(q.unwritten) > 0 && !now.Before(q.retryAt); ready[i] {
			waiting += len(q.unwritten)
		}
	}
	worth := settleBatch / 2 // of one list, to be settled though the other one is under way
	if s.base.options.Retention != KeepNothing {
		worth /= 2 // rows that are kept take the database longer than all else does
	}
	together := inFlight == 0 && waiting <= settlers*worth && !looking
	if due := s.began.Add(settleLinger); together && !s.urgent && now.Before(due) && waiting < few {
		if waiting > 0 {
			s.dueAt = due
		}
		return
	}
	var job settleJob
	started, left := false, 0
	for i := range s.lists {
		q := &s.lists[i]
		if ready[i] && (inFlight == 0 || len(q.unwritten) >= worth) {
			n := min(len(q.unwritten), cmp.Or(q.most, settleBatch))
			job.items, job.of[i] = append(job.items, q.unwritten[:n]...), n
			q.unwritten = slices.Delete(q.unwritten, 0, n)
			q.inFlight, q.retryAt = n, time.Time{}
			started = true
		}
		left += len(q.unwritten)
		if last := i == settlers-1; len(job.items) > 0 && (last || !together) {
			s.jobs <- job
			job = settleJob{}
		}
	}
	if started {
		s.began, s.dueAt, s.urgent = now, time.Time{}, s.urgent && left > 0
	}
}

// work writes batches back until the context ends.
func (s *settler) work(ctx context.Context) {
	var settlements []storage.Settlement // of one call after the other, in the same memory
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-s.jobs:
			settlements = settlements[:0]
			for _, it := range slices.SortedFunc(slices.Values(job.items), inTableOrder) {
				settlements = append(settlements, it.settlement())
			}
			bounded, cancel := context.WithTimeout(ctx, s.base.callTimeout)
			began := time.Now()
			counts, err := s.base.store.Settle(bounded, s.base.options.Name, s.base.options.Retention != KeepNothing, settlements)
			cancel()
			s.base.reached("settle", began, err)
			if s.base.options.Tracer != nil {
				s.base.traceSettled(began, job.items, err)
			}
			s.results <- func() { s.after(job, counts, err) }
		}
	}
}

// inTableOrder is the order in which stores write settlements. Those that come in it needn't be
// copied, which is a matter of some percent of a drain.
func inTableOrder(a, b *item) int {
	return cmp.Or(a.row.Lane-b.row.Lane, cmp.Compare(a.row.ID, b.row.ID))
}

// after takes in what became of a settlement. A batch that failed is written again. If the database
// had stored it after all, the repetition changes nothing.
func (s *settler) after(job settleJob, counts storage.Settled, err error) {
	switch {
	case job.retriesUnwritable:
		s.unwritable.tried(job.items, err)
	case err != nil:
		s.writeAgain(job, err)
	default:
		s.proven = true
		s.unwritable.taken()
		for i, n := range job.of {
			if q := &s.lists[i]; n > 0 {
				q.inFlight, q.failures, q.failed, q.refusals = 0, 0, 0, 0
				if q.most *= 2; q.most >= settleBatch { // settlements grow again
					q.most = 0
				}
			}
		}
	}
	if err == nil {
		s.written(job.items, counts)
	}
}

// writeAgain returns a failed batch to the front of its lists.
func (s *settler) writeAgain(job settleJob, err error) {
	of := job.items
	for i, n := range job.of {
		if n == 0 {
			continue
		}
		q := &s.lists[i]
		q.unwritten, of = slices.Concat(of[:n], q.unwritten), of[n:]
		q.inFlight = 0
		q.failures++
		if s.narrow(q, n, len(job.items) == 1, err) {
			q.retryAt = time.Now()
		} else {
			q.retryAt = time.Now().Add(settlePause.draw(q.failures))
		}
	}
	s.base.failed("settle", err)
}

// mayHaveMore says that something more may be sent: outcomes can be written, as far as is known. A relay that has just
// begun, or that the database refuses every outcome, sends no more while some aren't written. Else all of it would come again
// with each start.
func (s *settler) mayHaveMore() bool {
	return s.proven || !slices.ContainsFunc(s.lists[:], func(q unsettled) bool { return len(q.unwritten)+q.inFlight > 0 })
}

// hopeless says that no outcome can be written: nobody needs to wait for that.
func (s *settler) hopeless() bool {
	return s.unwritable.refusal != nil && !slices.ContainsFunc(s.lists[:], func(q unsettled) bool { return q.inFlight > 0 })
}

// count is the number of items whose outcome is not written back yet.
func (s *settler) count() (n int) {
	n = s.joiner.count
	for i := range s.lists {
		n += len(s.lists[i].unwritten) + s.lists[i].inFlight
	}
	return n
}

// narrow looks for the row because of which n of them could not be written. Where the
// reason may pass, it waits until the database has answered something else since: where it is not
// there, or busy, no row is to blame. It says whether less is to be written now, for a reason that lasts.
func (s *settler) narrow(q *unsettled, n int, alone bool, err error) (now bool) {
	if isUnreachable(err) {
		q.failed = 0
		return false
	}
	lasts := errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrRefused)
	if !lasts {
		if q.failed != n {
			q.failed, q.since = n, s.base.health.now()
			return false
		}
		if s.base.health.reached.Load() <= q.since {
			return false
		}
	}
	q.failed = 0
	if q.most = max(1, n/2); !alone && (lasts || n > 1) {
		q.failures, q.refusals = 1, 0
		return lasts
	}
	if errors.Is(err, storage.ErrTimeout) { // no row is to blame: the server is slow, or its limit too low for anything
		return false
	}
	if q.refusals++; !lasts && q.refusals%enoughRefusals != 0 {
		return false
	}
	changed, setAside := s.unwritable.refused(q.unwritten[0], err)
	if setAside {
		q.unwritten = slices.Delete(q.unwritten, 0, 1)
		q.failures, q.most, q.refusals = 1, 0, 0
	}
	s.proven = s.proven && s.unwritable.refusal == nil
	return (changed || setAside) && lasts
}

// failing says that outcomes could not be written lately.
func (s *settler) failing() bool {
	for i := range s.lists {
		if s.lists[i].failures > 0 || s.lists[i].most > 0 {
			return true
		}
	}
	return false
}

func isUnreachable(err error) bool {
	for _, known := range []error{storage.ErrBusy, context.Canceled, context.DeadlineExceeded, driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, known) {
			return true
		}
	}
	_, network := errors.AsType[net.Error](err)
	return network
}
