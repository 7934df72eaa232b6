package storetest

import (
	"maps"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Status counts the rows by state, counts the leased lanes, and lists the relays.
func statusCounts(t testing.TB, table Table) {
	a := hire(t, table, "a")
	if s := a.status(); s.OldestPending != 0 || s.LanesLeased != 0 || len(s.Relays) != 0 || s.Claim != "" || len(s.Counts) != 6 {
		t.Errorf("status of an empty table: %+v", s)
	}
	a.wantAdopt(storage.ByLanes, nil)
	a.beat(storage.ByLanes, long)
	dead := hire(t, table, "dead")
	dead.beat(storage.ByLanes, time.Millisecond)
	a.acquire(storage.Lanes, long)
	a.oneOfEach(table)
	write(t, table, outbox.Message{Topic: "due"}, outbox.Message{Topic: "plain"}, outbox.Message{Topic: "later", AvailableAt: time.Now().Add(time.Hour)})
	for _, row := range a.pending() {
		if row.Message.Topic == "due" {
			a.mustSettle(a.as(storage.StateScheduled, row)) // the row is due, so it counts as pending
		}
	}
	eventually(t, "the other relay is dead", func() bool { return len(a.beat(storage.ByLanes, long).Relays) == 1 })
	s := a.status()
	counts := map[storage.State]int64{
		storage.StatePending: 3, storage.StateClaimed: 0, storage.StateScheduled: 2,
		storage.StateRetry: 1, storage.StateError: 1, storage.StateDone: 1,
	}
	if !maps.Equal(s.Counts, counts) {
		t.Errorf("counts are %v, want %v", s.Counts, counts)
	}
	if want := map[string]int64{"plain": 2, "due": 1}; !maps.Equal(s.Topics, want) {
		t.Errorf("topics are %v, want %v", s.Topics, want)
	}
	if s.Claim != storage.ByLanes || s.LanesLeased != storage.Lanes {
		t.Errorf("the claim mode is %q and %d lanes are leased", s.Claim, s.LanesLeased)
	}
	wantRelays(t, s.Relays)
}

func wantRelays(t testing.TB, relays []storage.RelayInfo) {
	t.Helper()
	if len(relays) != 2 || relays[0].Name != "a" || relays[1].Name != "dead" {
		t.Fatalf("the relays are %+v, want those named \"a\" and \"dead\"", relays)
	}
	a, dead := relays[0], relays[1]
	if !a.Alive || dead.Alive || a.Lanes != storage.Lanes || dead.Lanes != 0 {
		t.Errorf(`want the relay "a" alive with all lanes, and the relay "dead" not alive and without lanes: %+v`, relays)
	}
	if a.Host != "host of a" || a.Version != "v1" || a.Claim != storage.ByLanes || a.Since.IsZero() || a.LastHeartbeat.Before(a.Since) {
		t.Errorf("relay a is %+v", a)
	}
}

// Rows count as claimed while their claim lasts.
func statusCountsClaims(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	write(t, table, plain(5)...)
	a.claim(storage.ClaimRequest{Token: "one", Limit: 2})
	if s := a.status(); s.Counts[storage.StatePending] != 3 || s.Counts[storage.StateClaimed] != 2 || s.Claim != storage.ByRows {
		t.Errorf("2 of 5 rows are claimed; the status is %+v", s)
	}
}

// The oldest pending row is the oldest row that could be delivered now.
func statusShowsTheOldest(t testing.TB, table Table) {
	a := holder(t, table, "a")
	states := a.oneOfEach(table)
	a.mustSettle(a.as(storage.StateDone, a.row(states[storage.StatePending])))
	write(t, table, outbox.Message{Topic: "later", AvailableAt: time.Now().Add(time.Hour)})
	if got := a.status().OldestPending; got != 0 {
		t.Errorf("no row can be delivered now, but the oldest pending row has the age %v", got)
	}
	start := time.Now()
	write(t, table, plain(1)...)
	eventually(t, "the oldest pending row is older than "+short.String(), func() bool { return a.status().OldestPending > short })
	write(t, table, plain(1)...)
	if got := a.status().OldestPending; got <= short || got > time.Since(start)+slack {
		t.Errorf("the oldest pending row has the age %v, and was written at most %v ago", got, time.Since(start))
	}
}
