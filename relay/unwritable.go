package relay

import (
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

// A settlement that the database refuses for good must not stop the others: with
// them unmarked, all that was delivered would be sent again and again. So one that
// fails while the database answers otherwise is halved until the row is alone, and
// that one is written without its texts: what can't be stored is mostly a text of
// elsewhere. If this is refused, too, the row is set aside: it stays in memory, is
// not sent again by this relay, and is tried now and then.

const (
	// mostUnwritable in a row are set aside with nothing written between; if more are
	// refused, the rows are not the cause.
	mostUnwritable = 10

	// aloneEnough times a row is refused alone before anything is done about it: a
	// connection that breaks now and then must not get a row set aside, and
	// overtaken by later ones.
	aloneEnough = 3

	// unwritablePause is what a row that was set aside waits before it is tried
	// again.
	unwritablePause = 30 * time.Second

	// unwritableText stands for an error's text that the database can't store.
	unwritableText = "(the database refused to store this error's text; the relay's log may have it)"
)

// narrow looks for the row because of which n of them could not be written. It
// waits until the database has answered something else since: where it is not
// there, or busy, no row is to blame.
func (s *settling) narrow(q *unsettled, n int, err error) {
	if isUnreachable(err) {
		q.failed = 0
		return
	}
	if q.failed != n {
		q.failed, q.since = n, s.health.now()
		return
	}
	if s.health.reached.Load() <= q.since {
		return
	}
	q.failed = 0
	if q.most = max(1, n/2); n > 1 {
		q.failures, q.alone = 1, 0
		return
	}
	if q.alone++; q.alone%aloneEnough == 0 {
		s.refused(q, err)
	}
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
	for i := range s.queues {
		if s.queues[i].failures > 0 || s.queues[i].most > 0 {
			return true
		}
	}
	return false
}

// refused deals with the first row of a queue, which was refused though it was
// alone.
func (s *settling) refused(q *unsettled, err error) {
	it := q.pending[0]
	settlement := &it.toWrite
	if settlement.Receipt != "" || settlement.Error != "" && settlement.Error != unwritableText {
		s.options.Logger.Warn("relay: the database refuses an outcome, which is written without its texts", "relay", s.options.Name,
			"id", it.row.Message.ID, "state", string(settlement.State), "text", settlement.Error, "receipt", settlement.Receipt, "error", err)
		if settlement.Receipt = ""; settlement.Error != "" {
			settlement.Error = unwritableText
		}
		return
	}
	if s.inARow >= mostUnwritable {
		return
	}
	s.inARow++
	s.unwritable, q.pending = append(s.unwritable, it), slices.Delete(q.pending, 0, 1)
	q.failures, q.most, q.alone = 1, 0, 0
	s.tryAt = time.Now().Add(unwritablePause)
	it.unwritable = true
	if it.queue != nil { // its place in memory is free for others
		it.queue.settling--
		it.queue.release(it)
		it.queue = nil
	}
	s.tellUnwritable(err)
	s.options.Observer.Failed("settle refused", err)
	s.options.Logger.Error("relay: the database refuses an outcome for good, which is set aside: its message will come again when the relay has ended", "relay", s.options.Name,
		"row", it.row.ID, "id", it.row.Message.ID, "topic", it.row.Message.Topic, "state", string(settlement.State), "error", err)
}

// tellUnwritable has Healthy say what could not be written.
func (s *settling) tellUnwritable(err error) {
	n := len(s.unwritable)
	if n == 0 {
		s.health.unwritable.Store(nil)
		return
	}
	text := fmt.Sprintf("the database refuses to store what became of %d messages: %v", n, err)
	s.health.unwritable.Store(&text)
}

// tryUnwritable tries one of the rows again that were set aside.
func (s *settling) tryUnwritable(now time.Time) {
	if s.trying || now.Before(s.tryAt) {
		return
	}
	s.trying = true
	s.settles <- settleJob{items: []*item{s.unwritable[0]}, again: true}
	s.unwritable = slices.Delete(s.unwritable, 0, 1)
}

// afterTry puts a row aside once more if it was refused again.
func (s *settling) afterTry(result settleResult) {
	s.trying, s.tryAt = false, time.Now()
	if result.err != nil {
		s.unwritable = append(s.unwritable, result.items...)
		s.tryAt = s.tryAt.Add(unwritablePause)
	}
	s.tellUnwritable(result.err)
}
