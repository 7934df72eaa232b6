package memstore

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// settled returns the row as it is after the settlement.
func (r *record) settled(name string, s storage.Settlement, now time.Time) *record {
	changed := *r.unclaimed()
	changed.state = s.State
	changed.row.Attempts, changed.row.Crashes, changed.row.Holds = s.Attempts, s.Crashes, storage.NoHold
	if s.Error != "" {
		changed.lastError = s.Error
	}
	if changed.attemptLog = nil; s.State != storage.StateDone {
		changed.attemptLog = r.attemptLog.With(s.Failed...)
	}
	switch {
	case s.State == storage.StateError && s.Holds:
		changed.row.Holds, changed.row.Message.AvailableAt = storage.HoldsKey, now
	case s.State == storage.StateRetry:
		changed.row.Message.AvailableAt = now.Add(s.Delay)
	case s.State == storage.StateDone:
		changed.receipt, changed.relay, changed.finishedAt = s.Receipt, name, now
	}
	return &changed
}

// copied returns a new pending row with a copy of the row's message. The new row has the
// id of the original until write gives it a new id.
func (r *record) copied(c *storage.Copy, now time.Time) *record {
	message := outbox.Message{ID: c.MessageID, Topic: c.Topic, Key: r.row.Message.Key, Payload: r.row.Message.Payload, Priority: r.row.Message.Priority}
	row := storage.Row{ID: r.row.ID, Sinks: c.Sinks, NeverExpires: r.row.NeverExpires}
	if r.row.Message.ExpiresAt.After(now) {
		message.ExpiresAt = r.row.Message.ExpiresAt
	}
	if c.Headers != "" {
		if err := json.Unmarshal([]byte(c.Headers), &message.Headers); err != nil {
			row.Malformed = err.Error()
		}
	}
	row.Message = own(message, 0)
	return &record{state: storage.StatePending, row: row}
}

// claimed returns the row with a claim.
func (r *record) claimed(by, token string, until time.Time) *record {
	changed := *r
	changed.claimedBy, changed.token, changed.claimedUntil = by, token, until
	return &changed
}

// unclaimed returns the row without a claim.
func (r *record) unclaimed() *record {
	return r.claimed("", "", time.Time{})
}

// crashed returns the row without its expired claim and with one more crash.
func (r *record) crashed() *record {
	changed := r.unclaimed()
	changed.row.Crashes++
	return changed
}

// withSinks returns the row with these sinks.
func (r *record) withSinks(sinks string) *record {
	changed := *r
	changed.row.Sinks = sinks
	return &changed
}

// inState returns the row in another state.
func (r *record) inState(state storage.State) *record {
	changed := *r
	changed.state = state
	return &changed
}

// wanted returns the row as a retry that is due now, with an operator's decision about
// the row.
func (r *record) wanted(hold storage.Hold, now time.Time) *record {
	changed := r.inState(storage.StateRetry)
	changed.row.Holds, changed.row.Message.AvailableAt = hold, now
	return changed
}

// requeued returns the row as it is after an operator has requeued it: the row is due
// now, and its attempts are reset.
func (r *record) requeued(now time.Time) *record {
	changed := r.inState(storage.StateScheduled)
	if r.holds() {
		changed.state = storage.StateRetry
	}
	changed.row.Attempts, changed.row.Crashes, changed.row.Holds = 0, 0, storage.NoHold
	changed.row.Message.AvailableAt = now
	if strings.HasPrefix(r.lastError, storage.Expired) {
		changed.row.NeverExpires, changed.row.Message.ExpiresAt = true, time.Time{}
	}
	return changed
}
