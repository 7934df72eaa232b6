package relay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Unwritable rows: the database refuses their outcomes, for example because of a constraint. They must not prevent other rows
// from being settled; otherwise all delivered messages would be sent again and again. So a settlement that fails while the
// database answers other calls is halved until the refused row is alone (settle.go). Then the row's outcome is written without
// the error text and the receipt, since a text from a destination is the usual cause. If the database refuses this outcome,
// too, the row is unwritable: it stays in memory, and this relay doesn't send it again. Once per unwritablePause, the relay
// tries to write the outcome of one such row.

const (
	// mostUnwritable is how many rows may become unwritable without a successful settlement in between. If more outcomes are
	// refused, the cause is probably the database or its settings, not the rows, so no further row becomes unwritable.
	mostUnwritable = 10

	// If the reason for a refusal may be temporary, the outcome of a row is changed or set aside only after it was written alone
	// and refused enoughRefusals times. A connection that breaks occasionally must not make a row unwritable, since later rows of
	// its key would overtake it.
	enoughRefusals = 3

	// unwritablePause is the wait before the relay tries again to write the outcome of an unwritable row.
	unwritablePause = 30 * time.Second
)

// unwritable holds the items whose outcomes the database refuses.
type unwritable struct {
	base    *base
	items   []*item
	trying  bool      // the outcome of one item is being written again
	tryAt   time.Time // when the next item is tried
	added   int       // how many items have become unwritable since the last successful settlement
	refusal error     // the error with which the database refuses every outcome; nil if it accepts some outcomes
}

// next removes and returns the item to try now; nil if none is due.
func (u *unwritable) next(now time.Time) *item {
	if len(u.items) == 0 || u.trying || now.Before(u.tryAt) {
		return nil
	}
	it := u.items[0]
	u.items, u.trying = slices.Delete(u.items, 0, 1), true
	return it
}

// tried processes the result for the item that the method `next` has returned.
func (u *unwritable) tried(items []*item, err error) {
	u.trying, u.tryAt = false, time.Now()
	if err != nil { // the database has refused the outcome again
		u.items = append(u.items, items...)
		u.tryAt = u.tryAt.Add(unwritablePause)
	}
	u.report(err)
}

// taken records that the database has accepted a settlement of other rows.
func (u *unwritable) taken() {
	u.added = 0
	if u.refusal == nil {
		return
	}
	u.refusal = nil
	u.tryAt = time.Now() // try the unwritable items again now: they may have been refused for the same reason
	u.report(nil)
}

// refused decides what to do with an outcome that was refused when it was written alone. If the result `changed` is true, the
// method has changed the outcome, and the changed outcome is to be written. If `setAside` is true, the item is unwritable. If
// neither is true, the row is not considered the cause, and its outcome is to be written again unchanged.
func (u *unwritable) refused(it *item, err error) (changed, setAside bool) {
	outcome := &it.toWrite
	invalid, refused := errors.Is(err, storage.ErrInvalid), errors.Is(err, storage.ErrRefused)
	if !refused && (outcome.receipt != "" || outcome.problem != "" && outcome.problem != unwritableText) {
		u.base.options.Logger.Warn("relay: the database refuses an outcome; writing it without the error text and the receipt", "relay", u.base.options.Name,
			"id", it.row.Message.ID, "state", string(outcome.state), "text", outcome.problem, "receipt", outcome.receipt, "error", err)
		if outcome.receipt = ""; outcome.problem != "" {
			outcome.problem = unwritableText
		}
		it.failed = nil
		if outcome.deadLetter != nil {
			outcome.deadLetter = withoutError(*outcome.deadLetter)
		}
		return true, false
	}
	if u.added >= mostUnwritable && it.row.Malformed == "" {
		if invalid || refused {
			u.reportRefusal(err)
		}
		return false, false
	}
	if outcome.deadLetter != nil && (invalid || refused) { // the relay may lack the privilege to insert the dead letter: try without it
		outcome.deadLetter, outcome.refusedLetter = nil, outcome.deadLetter
		return true, false
	}
	if outcome.refusedLetter != nil { // the outcome was refused without the dead letter, too: restore the dead letter
		outcome.deadLetter, outcome.refusedLetter = outcome.refusedLetter, nil
	}
	if invalid && it.wholly() && outcome.state == storage.StateDone && u.base.options.Retention != KeepNothing {
		outcome.state = storage.StateDiscarded
		u.base.options.Observer.Failed("settle_refused", err)
		u.base.options.Logger.Error("relay: the database refuses to keep a delivered message; deleting its row", "relay", u.base.options.Name,
			"row", it.row.ID, "id", it.row.Message.ID, "topic", it.row.Message.Topic, "error", err)
		return true, false
	}
	if it.row.Malformed == "" { // malformed rows don't count, because it is known why their outcomes are refused
		u.added++
	}
	u.items, u.tryAt = append(u.items, it), time.Now().Add(unwritablePause)
	it.unwritable = true
	for _, with := range it.together() {
		if with.queue != nil { // no longer counted in the sink's buffer
			with.queue.settling--
			with.queue.release(with)
			with.queue = nil
		}
	}
	u.report(err)
	u.base.options.Observer.Failed("settle_refused", err)
	u.base.options.Logger.Error("relay: the database refuses an outcome; setting it aside: its message will be sent again after this relay has ended", "relay", u.base.options.Name,
		"row", it.row.ID, "id", it.row.Message.ID, "topic", it.row.Message.Topic, "state", string(outcome.state), "error", err)
	return false, true
}

// reportRefusal reports to Healthy and the log that the database refuses every outcome. Until the database accepts an outcome, the
// relay sends nothing.
func (u *unwritable) reportRefusal(err error) {
	text := fmt.Sprintf("the database refuses every outcome, and nothing is sent until it accepts one: %v", err)
	u.base.health.unwritable.Store(&text)
	if u.refusal == nil {
		u.base.options.Logger.Error("relay: the database refuses every outcome, and nothing is sent until it accepts one", "relay", u.base.options.Name, "error", err)
	}
	u.refusal = err
}

// report updates the text that Healthy returns about unwritable outcomes.
func (u *unwritable) report(err error) {
	n := len(u.items)
	switch {
	case u.refusal != nil: // reportRefusal has set the text
	case n == 0:
		u.base.health.unwritable.Store(nil)
		u.base.options.Logger.Info("relay: the database has stored all outcomes that it had refused", "relay", u.base.options.Name)
	case err != nil: // if err is nil, one outcome was written, and the next one is tried now
		text := fmt.Sprintf("the database refuses to store the outcomes of %d messages: %v", n, err)
		u.base.health.unwritable.Store(&text)
	}
}
