package memstore

import (
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// settled returns the row as the settlement makes it.
func (r *record) settled(name string, s storage.Settlement, now time.Time) *record {
	changed := *r.unclaimed()
	changed.state = s.State
	changed.row.Attempts, changed.row.Crashes = s.Attempts, s.Crashes
	if s.Error != "" {
		changed.lastError = s.Error
	}
	switch s.State {
	case storage.StateRetry:
		changed.row.Message.AvailableAt = now.Add(s.Delay)
	case storage.StateDone:
		changed.receipt, changed.relay, changed.finishedAt = s.Receipt, name, now
	}
	return &changed
}

// claimed returns the row with a claim on it.
func (r *record) claimed(by, token string, until time.Time) *record {
	changed := *r
	changed.claimedBy, changed.token, changed.claimedUntil = by, token, until
	return &changed
}

// unclaimed returns the row without a claim.
func (r *record) unclaimed() *record {
	return r.claimed("", "", time.Time{})
}

// crashed returns the row free again after its claim has ended.
func (r *record) crashed() *record {
	changed := r.unclaimed()
	changed.row.Crashes++
	return changed
}

// inState returns the row in another state.
func (r *record) inState(state storage.State) *record {
	changed := *r
	changed.state = state
	return &changed
}

// requeued returns a parked row that is due at once, uncharged.
func (r *record) requeued(now time.Time) *record {
	changed := r.inState(storage.StateScheduled)
	changed.row.Attempts, changed.row.Crashes = 0, 0
	changed.row.Message.AvailableAt = now
	return changed
}
