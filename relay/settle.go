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

// Settling. The settler collects the outcomes of messages and writes them in batches, each outcome under the fence of its lane or
// the token of its claim. What must hold: the outcomes of a key are written in order. A batch that could not be written is
// written again. An outcome of a lost lane changes nothing, because fences are never reused.

const (
	// settlers is the maximum number of concurrent settlements. A store may allow fewer. Concurrent settlements are for different
	// lanes. So the outcomes of a key are written in order, and after a crash the lane's next holder sends again only the last
	// messages of the key, in order. Outcomes that fit into one settlement are written together, because two small settlements
	// would slow down the database and each other.
	settlers = 2

	// settleBatch is the maximum number of rows in one settlement.
	settleBatch = 2000

	// settleLinger is how long deliveries may wait, counted from the start of the last settlement, so that more of them are
	// written together. When few messages arrive, writing each delivery alone would be most of the relay's work. Deliveries wait
	// only while there are fewer than settleFew of them.
	settleLinger = 80 * time.Millisecond
	settleFew    = 64
)

// settlePause is the back-off of a settlement that failed.
var settlePause = Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}

// settler writes outcomes. It keeps a list for each settlement that may be in progress. Only the loop calls its methods, except
// for the method `work`, which runs in other goroutines and returns its results through the channel `results`.
type settler struct {
	base    *base
	jobs    chan settleJob
	results chan<- func()                               // functions that the loop calls
	written func(items []*item, counts storage.Settled) // the loop calls it when the outcomes of these items have been written

	lists  [settlers]unsettled
	atOnce int // how many of the lists are used

	began  time.Time // when the last settlement began
	urgent bool      // some unwritten outcome is not a delivery, so the next settlement must not wait
	dueAt  time.Time // when the waiting deliveries are written at the latest (settleLinger)
	proven bool      // false until a settlement has succeeded, and while the database refuses every outcome

	joiner     joiner
	unwritable unwritable
}

// newSettler returns a settler that runs at most atOnce settlements concurrently.
func newSettler(b *base, names []string, atOnce int, results chan<- func(), written func([]*item, storage.Settled)) *settler {
	return &settler{
		base: b, jobs: make(chan settleJob, settlers+1), results: results, written: written, atOnce: min(settlers, atOnce),
		joiner: newJoiner(names), unwritable: unwritable{base: b},
	}
}

// unsettled is one list of items whose outcomes are to be written.
type unsettled struct {
	unwritten []*item
	inFlight  int // how many of the list's items have outcomes that are being written
	failures  int
	retryAt   time.Time

	most     int   // the maximum number of rows in the next settlement while searching for a row that the database refuses; 0 if no search is in progress
	failed   int   // how many rows the last failed settlement had
	since    int64 // when a settlement of that many rows first failed, as a value of health.now
	refusals int   // how often the list's first row was refused when its outcome was written alone
}

// settleJob is one call of Settle.
type settleJob struct {
	items             []*item
	of                [settlers]int // how many of the items come from each list; items are in the order of the lists
	retriesUnwritable bool          // the job is another attempt for an unwritable item
}

// add queues an item's outcome. If its message has several sinks, the outcome may first wait for the outcomes of the other sinks.
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

// write queues the settlements of items.
func (s *settler) write(items ...*item) {
	for _, it := range items {
		q := &s.lists[uint(it.row.Lane)%uint(s.atOnce)] // unsigned, since a session with constraints disabled may have written a negative lane
		q.unwritten = append(q.unwritten, it)
		s.urgent = s.urgent || it.toWrite.state != storage.StateDone
	}
}

// start hands unwritten outcomes to the goroutines that run work: both lists as one settlement, or each list as its own
// settlement if the lists are long. While one list is being written, the other one waits if it is short. If the number of
// unwritten deliveries is below the parameter `few`, start waits up to settleLinger for further ones. The delay is harmless,
// because the next messages of the same keys can be sent before these outcomes are written. When a buffer fills up, the caller
// passes 0, so that no delivery waits. Retries and parked messages don't wait, because their keys are blocked.
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
	worth := settleBatch / 2 // a list of at least this length is settled concurrently with the other one
	if s.base.options.Retention != KeepNothing {
		worth /= 2 // keeping the rows of delivered messages is the slowest part of a relay's work
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

// work writes settlements until the context ends.
func (s *settler) work(ctx context.Context) {
	var settlements []storage.Settlement // reused by all calls
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

// inTableOrder is the order in which stores write settlements. A store need not copy settlements that are in this order already,
// which makes a drain a few percent faster.
func inTableOrder(a, b *item) int {
	return cmp.Or(a.row.Lane-b.row.Lane, cmp.Compare(a.row.ID, b.row.ID))
}

// after processes the result of a settlement. If the settlement failed, its batch is written again. The second write changes
// nothing if the database stored the batch although the settlement seemed to fail.
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
				if q.most *= 2; q.most >= settleBatch { // settlements may be larger again
					q.most = 0
				}
			}
		}
		if !slices.ContainsFunc(s.lists[:], func(q unsettled) bool { return q.failures > 0 }) { // the other list may still be failing
			s.base.tried(&s.base.health.settle, nil)
		}
	}
	if err == nil {
		s.written(job.items, counts)
	}
}

// writeAgain puts the items of a failed settlement back at the front of their lists.
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
	s.base.tried(&s.base.health.settle, err)
	s.base.failed("settle", err)
}

// mayHaveMore reports whether more messages may be sent. Until a settlement has succeeded, and while the database refuses every
// outcome, the relay sends nothing as long as outcomes are unwritten. Otherwise more and more messages would be sent again
// after each restart.
func (s *settler) mayHaveMore() bool {
	return s.proven || !slices.ContainsFunc(s.lists[:], func(q unsettled) bool { return len(q.unwritten)+q.inFlight > 0 })
}

// hopeless reports whether the database refuses every outcome and none is being written. Then a stop needn't wait.
func (s *settler) hopeless() bool {
	return s.unwritable.refusal != nil && !slices.ContainsFunc(s.lists[:], func(q unsettled) bool { return q.inFlight > 0 })
}

// count returns how many items have an outcome that is not written.
func (s *settler) count() (n int) {
	n = s.joiner.count
	for i := range s.lists {
		n += len(s.lists[i].unwritten) + s.lists[i].inFlight
	}
	return n
}

// narrow searches for the row that made a settlement of n rows fail, by halving the next settlement. If the error may be
// temporary, the search begins only after another call to the database has succeeded, since the failure of an unreachable or busy
// database doesn't show that a row is the cause. narrow returns true if the failure is lasting and a smaller or changed
// settlement should be written immediately.
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
	if errors.Is(err, storage.ErrTimeout) { // the row is not the cause: the server is slow, or its time limit is too low
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

// failing reports whether the last settlement of some list failed.
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
