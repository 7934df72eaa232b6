package relay

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
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

// settling is what waits to be written back: a list for each settler's lanes.
type settling struct {
	*engine
	settles chan settleJob

	lists  [settlers]unsettled // not to be taken for the sinks' queues
	atOnce int                 // so many of the lists are in use

	began  time.Time // of the last settlement
	urgent bool      // something unwritten is no delivery, and is written at once
	dueAt  time.Time // until when deliveries wait to be written together

	joiner joiner

	unwritable []*item   // the database refuses their outcomes; each is tried again now and then
	trying     bool      // one of them is being tried
	tryAt      time.Time // when the next one is
	inARow     int       // rows that became unwritable one after the other, with nothing written between

	proven  bool  // the last settlement but for such rows was written, or failed for a reason that passes
	refusal error // why the database refuses every outcome, for a reason that lasts; nil if it doesn't
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
	retriesUnwritable bool          // an item of settling.unwritable is tried again
}

// add has an item's outcome written back: with those of its message's other sinks, if there are any.
func (s *settling) add(it *item, outcome result) {
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
func (s *settling) write(items ...*item) {
	for _, it := range items {
		q := &s.lists[it.row.Lane%s.atOnce]
		q.unwritten = append(q.unwritten, it)
		s.urgent = s.urgent || it.toWrite.state != storage.StateDone
	}
}

// start hands what there is to the settlers: all at once, or, where that is much, each
// list by itself. While one list is being written, a few rows of the other one wait for it. A
// few deliveries wait for more, up to settleLinger: nobody waits for a message to be marked,
// as its key goes on, and its place in memory is needed only where there are many. Retries
// and parked messages are written at once, as their keys wait.
func (s *settling) start(now time.Time) {
	if s.stopping.ready { // the leases are being given back: no outcome changes anything any more
		return
	}
	s.write(s.joiner.late(now)...)
	if len(s.unwritable) > 0 && !s.trying && !now.Before(s.tryAt) {
		s.trying = true
		s.settles <- settleJob{items: []*item{s.unwritable[0]}, retriesUnwritable: true}
		s.unwritable = slices.Delete(s.unwritable, 0, 1)
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
	if s.options.Retention != KeepNothing {
		worth /= 2 // rows that are kept take the database longer than all else does
	}
	together := inFlight == 0 && waiting <= settlers*worth && !looking
	// What lingers is delivered again if the relay dies. So fewer than a batch may linger, of each sink's: one
	// sink with a small batch, or a buffer of which a quarter is full, bounds it for all. Nothing lingers
	// while what is sent is written down before.
	few := settleFew
	if s.stopping.begun || s.options.Drain || s.duplicates != nil || now.Before(s.journalAll) {
		few = 0
	}
	for _, q := range s.engine.queues {
		switch o := &q.options; {
		case o.Sink == nil:
		case q.buffered > o.Buffer/4 || q.bytes > o.BufferBytes/4:
			few = 0
		default:
			few = min(few, o.Batch)
		}
	}
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
			s.settles <- job
			job = settleJob{}
		}
	}
	if started {
		s.began, s.dueAt, s.urgent = now, time.Time{}, s.urgent && left > 0
	}
}

// settler writes batches back.
func (s *settling) settler(ctx context.Context) {
	var settlements []storage.Settlement // of one call after the other, in the same memory
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-s.settles:
			settlements = settlements[:0]
			for _, it := range slices.SortedFunc(slices.Values(job.items), inTableOrder) {
				settlements = append(settlements, it.settlement())
			}
			bounded, cancel := context.WithTimeout(ctx, s.callTimeout)
			began := time.Now()
			counts, err := s.store.Settle(bounded, s.options.Name, s.options.Retention != KeepNothing, settlements)
			cancel()
			s.reached("settle", began, err)
			if s.options.Tracer != nil {
				s.traceSettled(began, job.items, err)
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

// after takes out of memory what is written. A batch that failed is written again. If the database
// had stored it after all, the repetition changes nothing.
func (s *settling) after(job settleJob, counts storage.Settled, err error) {
	if job.retriesUnwritable {
		s.trying, s.tryAt = false, time.Now()
		if err != nil { // it is unwritable still
			s.unwritable = append(s.unwritable, job.items...)
			s.tryAt = s.tryAt.Add(unwritablePause)
		}
		s.tellUnwritable(err)
	} else if err != nil {
		s.writeAgain(job, err)
	} else {
		s.inARow, s.proven = 0, true
		s.tellTaken()
		for i, n := range job.of {
			if q := &s.lists[i]; n > 0 {
				q.inFlight, q.failures, q.failed, q.refusals = 0, 0, 0, 0
				if q.most *= 2; q.most >= settleBatch { // settlements grow again
					q.most = 0
				}
			}
		}
	}
	if err != nil {
		return
	}
	states := map[storage.State]int{}
	for _, it := range job.items {
		s.finish(it, states)
	}
	s.work.retried, s.work.parked = s.work.retried+states[storage.StateRetry], s.work.parked+states[storage.StateError]
	s.options.Observer.Settled(counts, states)
	if counts.Fenced > 0 {
		s.options.Logger.Warn("relay: outcomes came after the lease was lost and changed nothing", "relay", s.options.Name, "rows", counts.Fenced)
		s.lease.next = time.Now() // lanes may be lost: a renewal tells which
	}
}

// finish ends an item whose outcome is written, and those that were written with it, counts
// their states, and goes on with what waits for that.
func (e *engine) finish(it *item, states map[storage.State]int) {
	if letter := it.toWrite.refusedLetter; letter != nil {
		e.options.Logger.Error("relay: the database refuses a dead letter: its message is parked without one", "relay", e.options.Name,
			"row", it.row.ID, "id", it.row.Message.ID, "topic", letter.Topic)
	}
	if it.toWrite.deadLetter != nil { // it is pending now: look, and end no drain before
		e.poll.fresh, e.poll.empty = true, 0
	}
	for _, with := range it.together() {
		if with.row.Holds == storage.NoHold { // what is skipped or discarded was parked before
			states[with.toWrite.state]++
		}
		if e.duplicates != nil {
			e.duplicates.marked(with)
		}
		if q := with.queue; q != nil {
			if with.stage == inSettle { // and not written by a handler's transaction
				q.settling--
			}
			q.release(with)
		}
		with.stage = written
		e.claiming.settled(with)
	}
	if it.joint != nil {
		e.settle.write(e.settle.joiner.written(it, time.Now())...)
	}
}

// writeAgain returns a failed batch to the front of its lists.
func (s *settling) writeAgain(job settleJob, err error) {
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
	s.failed("settle", err)
}

// mayHaveMore says that something more may be sent: outcomes can be written, as far as is known. A relay that has just
// begun, or that the database refuses every outcome, sends no more while some aren't written. Else all of it would come again
// with each start.
func (s *settling) mayHaveMore() bool {
	return s.proven || !slices.ContainsFunc(s.lists[:], func(q unsettled) bool { return len(q.unwritten)+q.inFlight > 0 })
}

// hopeless says that no outcome can be written: nobody needs to wait for that.
func (s *settling) hopeless() bool {
	return s.refusal != nil && !slices.ContainsFunc(s.lists[:], func(q unsettled) bool { return q.inFlight > 0 })
}

// count is the number of items whose outcome is not written back yet.
func (s *settling) count() (n int) {
	n = s.joiner.count
	for i := range s.lists {
		n += len(s.lists[i].unwritten) + s.lists[i].inFlight
	}
	return n
}

// A settlement that the database refuses for good must not stop the others: with
// them unmarked, all that was delivered would be sent again and again. So one that
// fails while the database answers otherwise is halved until the row is alone, and
// that one is written without its texts: what can't be stored is mostly a text of
// elsewhere. If this is refused, too, the row is unwritable: it stays in memory, is
// not sent again by this relay, and its outcome is tried now and then.

const (
	// After this many refused rows one after another, without a success between, no further
	// row is blamed: the cause is something else.
	mostUnwritable = 10

	// enoughRefusals is how often a row is refused alone before anything is done about it: a
	// connection that breaks now and then must not make a row unwritable, and have it
	// overtaken by later ones.
	enoughRefusals = 3

	// unwritablePause is the wait before an unwritable row is tried again.
	unwritablePause = 30 * time.Second

	// unwritableText stands for an error's text that the database can't store.
	unwritableText = "(the database refused to store this error's text; the relay's log may have it)"
)

// narrow looks for the row because of which n of them could not be written. Where the
// reason may pass, it waits until the database has answered something else since: where it is not
// there, or busy, no row is to blame. It says whether less is to be written now, for a reason that lasts.
func (s *settling) narrow(q *unsettled, n int, alone bool, err error) (now bool) {
	if isUnreachable(err) {
		q.failed = 0
		return false
	}
	lasts := errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrRefused)
	if !lasts {
		if q.failed != n {
			q.failed, q.since = n, s.health.now()
			return false
		}
		if s.health.reached.Load() <= q.since {
			return false
		}
	}
	q.failed = 0
	if q.most = max(1, n/2); !alone && (lasts || n > 1) {
		q.failures, q.refusals = 1, 0
		return lasts
	}
	if q.refusals++; lasts || q.refusals%enoughRefusals == 0 {
		return s.refused(q, err) && lasts
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

// failing says that outcomes could not be written lately.
func (s *settling) failing() bool {
	for i := range s.lists {
		if s.lists[i].failures > 0 || s.lists[i].most > 0 {
			return true
		}
	}
	return false
}

// refused deals with the first row of a list, which was refused though it was
// alone. It says whether that was possible.
func (s *settling) refused(q *unsettled, err error) bool {
	it := q.unwritten[0]
	outcome := &it.toWrite
	invalid, refused := errors.Is(err, storage.ErrInvalid), errors.Is(err, storage.ErrRefused)
	if !refused && (outcome.receipt != "" || outcome.problem != "" && outcome.problem != unwritableText) {
		s.options.Logger.Warn("relay: the database refuses an outcome, which is written without its texts", "relay", s.options.Name,
			"id", it.row.Message.ID, "state", string(outcome.state), "text", outcome.problem, "receipt", outcome.receipt, "error", err)
		if outcome.receipt = ""; outcome.problem != "" {
			outcome.problem = unwritableText
		}
		if outcome.deadLetter != nil {
			outcome.deadLetter = withoutError(*outcome.deadLetter)
		}
		return true
	}
	if s.inARow >= mostUnwritable {
		if invalid || refused {
			s.tellRefusal(err)
		}
		return false
	}
	if outcome.deadLetter != nil && (invalid || refused) { // perhaps the relay may not insert it: then its message is parked alone
		outcome.deadLetter, outcome.refusedLetter = nil, outcome.deadLetter
		return true
	}
	if outcome.refusedLetter != nil { // it isn't why
		outcome.deadLetter, outcome.refusedLetter = outcome.refusedLetter, nil
	}
	if invalid && it.wholly() && outcome.state == storage.StateDone && s.options.Retention != KeepNothing {
		outcome.state = storage.StateDiscarded
		s.options.Observer.Failed("settle_refused", err)
		s.options.Logger.Error("relay: the database refuses to keep a delivered message, whose row is deleted without being kept", "relay", s.options.Name,
			"row", it.row.ID, "id", it.row.Message.ID, "topic", it.row.Message.Topic, "error", err)
		return true
	}
	s.inARow++
	s.unwritable, q.unwritten = append(s.unwritable, it), slices.Delete(q.unwritten, 0, 1)
	q.failures, q.most, q.refusals = 1, 0, 0
	s.tryAt = time.Now().Add(unwritablePause)
	it.unwritable = true
	for _, with := range it.together() {
		if with.queue != nil { // it no longer counts against the sink's buffer
			with.queue.settling--
			with.queue.release(with)
			with.queue = nil
		}
	}
	s.tellUnwritable(err)
	s.options.Observer.Failed("settle_refused", err)
	s.options.Logger.Error("relay: the database refuses an outcome for good, which is set aside: its message will come again when the relay has ended", "relay", s.options.Name,
		"row", it.row.ID, "id", it.row.Message.ID, "topic", it.row.Message.Topic, "state", string(outcome.state), "error", err)
	return true
}

// tellRefusal has Healthy and the log say that every outcome is refused. Nothing more is sent until one is taken.
func (s *settling) tellRefusal(err error) {
	s.proven = false
	text := fmt.Sprintf("the database refuses every outcome, and nothing is sent until it takes one: %v", err)
	s.health.unwritable.Store(&text)
	if s.refusal == nil {
		s.options.Logger.Error("relay: the database refuses every outcome, and nothing is sent until it takes one", "relay", s.options.Name, "error", err)
	}
	s.refusal = err
}

// tellTaken has them say that this is over.
func (s *settling) tellTaken() {
	if s.refusal == nil {
		return
	}
	s.refusal = nil
	s.tryAt = time.Now() // rows were set aside for the same reason
	s.tellUnwritable(nil)
}

// tellUnwritable has Healthy say what could not be written.
func (s *settling) tellUnwritable(err error) {
	n := len(s.unwritable)
	switch {
	case s.refusal != nil: // it says that of all
	case n == 0:
		s.health.unwritable.Store(nil)
		s.options.Logger.Info("relay: the database has stored what it had refused", "relay", s.options.Name)
	case err != nil: // else one is written, and the next one is tried now
		text := fmt.Sprintf("the database refuses to store what became of %d messages: %v", n, err)
		s.health.unwritable.Store(&text)
	}
}

const (
	// purgeInterval is how often delivered rows past their retention are deleted.
	purgeInterval = 10 * time.Second

	// purgeBatch bounds the rows of one deletion.
	purgeBatch = 1000

	// purgeRest is how many times as long as a deletion took there is none, so that
	// the database has time for messages; but for no longer than longestRest.
	purgeRest   = 3
	longestRest = time.Second / 4
)

// janitor deletes what is past its retention, in small batches with rests in between,
// so that it never holds a lock for long, nor keeps a core busy.
func (b *base) janitor(ctx context.Context) {
	for pause := time.Duration(0); sleep(ctx, pause); {
		if why := b.health.waits.Load(); why == nil || *why != "" { // it takes no part yet, and its retention may be shorter than theirs who do
			pause = time.Second
			continue
		}
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, b.callTimeout)
		n, err := b.store.Purge(bounded, max(0, b.options.Retention), purgeBatch)
		cancel()
		b.options.Observer.Called("purge", time.Since(began))
		if pause = purgeInterval; err != nil {
			b.failed("purge", err)
		} else if n == purgeBatch {
			pause = min(purgeRest*time.Since(began), longestRest)
		}
	}
}
