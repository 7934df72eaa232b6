package relay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Outcomes that the database refuses for good. They must not stop the others: with
// them unmarked, all that was delivered would be sent again and again. So a settlement that
// fails while the database answers otherwise is halved until the row is alone (settle.go), and
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
)

// unwritable are the items whose outcomes the database refuses.
type unwritable struct {
	base    *base
	items   []*item   // each is tried again now and then
	trying  bool      // one of them is being tried
	tryAt   time.Time // when the next one is
	inARow  int       // items that became unwritable one after the other, with nothing written between
	refusal error     // why the database refuses every outcome, for a reason that lasts; nil if it doesn't
}

// next takes out the item that is tried now; nil if it isn't time.
func (u *unwritable) next(now time.Time) *item {
	if len(u.items) == 0 || u.trying || now.Before(u.tryAt) {
		return nil
	}
	it := u.items[0]
	u.items, u.trying = slices.Delete(u.items, 0, 1), true
	return it
}

// tried takes in what became of the item that next returned.
func (u *unwritable) tried(items []*item, err error) {
	u.trying, u.tryAt = false, time.Now()
	if err != nil { // it is unwritable still
		u.items = append(u.items, items...)
		u.tryAt = u.tryAt.Add(unwritablePause)
	}
	u.tell(err)
}

// taken notes that the database has taken other outcomes.
func (u *unwritable) taken() {
	u.inARow = 0
	if u.refusal == nil {
		return
	}
	u.refusal = nil
	u.tryAt = time.Now() // rows were set aside for the same reason
	u.tell(nil)
}

// refused decides about an outcome that was refused though it was written alone. changed: it is to be written again, as it says less
// now. setAside: the item is unwritable. If it is neither, no row is blamed: the outcome is to be written again as it is.
func (u *unwritable) refused(it *item, err error) (changed, setAside bool) {
	outcome := &it.toWrite
	invalid, refused := errors.Is(err, storage.ErrInvalid), errors.Is(err, storage.ErrRefused)
	if !refused && (outcome.receipt != "" || outcome.problem != "" && outcome.problem != unwritableText) {
		u.base.options.Logger.Warn("relay: the database refuses an outcome, which is written without its texts", "relay", u.base.options.Name,
			"id", it.row.Message.ID, "state", string(outcome.state), "text", outcome.problem, "receipt", outcome.receipt, "error", err)
		if outcome.receipt = ""; outcome.problem != "" {
			outcome.problem = unwritableText
		}
		if outcome.deadLetter != nil {
			outcome.deadLetter = withoutError(*outcome.deadLetter)
		}
		return true, false
	}
	if u.inARow >= mostUnwritable && it.row.Malformed == "" {
		if invalid || refused {
			u.tellRefusal(err)
		}
		return false, false
	}
	if outcome.deadLetter != nil && (invalid || refused) { // perhaps the relay may not insert it: then its message is parked alone
		outcome.deadLetter, outcome.refusedLetter = nil, outcome.deadLetter
		return true, false
	}
	if outcome.refusedLetter != nil { // it isn't why
		outcome.deadLetter, outcome.refusedLetter = outcome.refusedLetter, nil
	}
	if invalid && it.wholly() && outcome.state == storage.StateDone && u.base.options.Retention != KeepNothing {
		outcome.state = storage.StateDiscarded
		u.base.options.Observer.Failed("settle_refused", err)
		u.base.options.Logger.Error("relay: the database refuses to keep a delivered message, whose row is deleted without being kept", "relay", u.base.options.Name,
			"row", it.row.ID, "id", it.row.Message.ID, "topic", it.row.Message.Topic, "error", err)
		return true, false
	}
	if it.row.Malformed == "" { // else the row is the cause
		u.inARow++
	}
	u.items, u.tryAt = append(u.items, it), time.Now().Add(unwritablePause)
	it.unwritable = true
	for _, with := range it.together() {
		if with.queue != nil { // it no longer counts against the sink's buffer
			with.queue.settling--
			with.queue.release(with)
			with.queue = nil
		}
	}
	u.tell(err)
	u.base.options.Observer.Failed("settle_refused", err)
	u.base.options.Logger.Error("relay: the database refuses an outcome for good, which is set aside: its message will come again when the relay has ended", "relay", u.base.options.Name,
		"row", it.row.ID, "id", it.row.Message.ID, "topic", it.row.Message.Topic, "state", string(outcome.state), "error", err)
	return false, true
}

// tellRefusal has Healthy and the log say that every outcome is refused. Nothing more is sent until one is taken.
func (u *unwritable) tellRefusal(err error) {
	text := fmt.Sprintf("the database refuses every outcome, and nothing is sent until it takes one: %v", err)
	u.base.health.unwritable.Store(&text)
	if u.refusal == nil {
		u.base.options.Logger.Error("relay: the database refuses every outcome, and nothing is sent until it takes one", "relay", u.base.options.Name, "error", err)
	}
	u.refusal = err
}

// tell has Healthy say what could not be written.
func (u *unwritable) tell(err error) {
	n := len(u.items)
	switch {
	case u.refusal != nil: // it says that of all
	case n == 0:
		u.base.health.unwritable.Store(nil)
		u.base.options.Logger.Info("relay: the database has stored what it had refused", "relay", u.base.options.Name)
	case err != nil: // else one is written, and the next one is tried now
		text := fmt.Sprintf("the database refuses to store what became of %d messages: %v", n, err)
		u.base.health.unwritable.Store(&text)
	}
}
