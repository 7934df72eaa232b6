package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

func (w *worker) beat(claim storage.Claim, ttl time.Duration) (members storage.Members) {
	w.Helper()
	w.do("heartbeat", func(ctx context.Context) (err error) {
		members, err = w.store.Heartbeat(ctx, storage.Identity{Name: w.name, Host: "host of " + w.name, Version: "v1", Claim: claim}, ttl)
		return err
	})
	return members
}

func (w *worker) leave() {
	w.Helper()
	w.do("deregister", func(ctx context.Context) error { return w.store.Deregister(ctx, w.name) })
}

func (w *worker) wantCensus(want ...string) {
	w.Helper()
	var got []string
	for _, m := range w.beat(storage.ByLanes, long).Relays {
		got = append(got, m.Name)
	}
	if !slices.Equal(got, want) {
		w.Errorf("%s sees the relays %v, want %v", w.name, got, want)
	}
}

// tell sends a heartbeat that has this configuration.
func (w *worker) tell(setup storage.Config) (members storage.Members) {
	w.Helper()
	w.do("heartbeat with a configuration", func(ctx context.Context) (err error) {
		members, err = w.store.Heartbeat(ctx, storage.Identity{Name: w.name, Claim: storage.ByLanes, Config: setup}, long)
		return err
	})
	return members
}

// A relay is alive from its first heartbeat until it deregisters or the TTL of its last heartbeat has
// passed.
func membersAreAlive(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	c.wantCensus("c")
	a.wantCensus("a", "c")
	b.beat(storage.ByLanes, long)
	a.wantCensus("a", "b", "c")
	c.leave()
	start := time.Now()
	b.beat(storage.ByLanes, short)
	eventually(t, "b is dead", func() bool { return len(a.beat(storage.ByLanes, long).Relays) == 1 })
	if waited := time.Since(start); waited < short-slack {
		t.Errorf("a relay whose heartbeat had a TTL of %v was dead after %v", short, waited)
	}
	c.leave() // deregisters again
	b.wantCensus("a", "b")
	tellSetups(t, a, b)
}

// A heartbeat returns the latest configuration of each relay.
func tellSetups(t testing.TB, a, b *worker) {
	t.Helper()
	told := func(members storage.Members, of string) string {
		i := slices.IndexFunc(members.Relays, func(m storage.Member) bool { return m.Name == of })
		return members.Relays[max(0, i)].Config.Text()
	}
	first := storage.Config{Print: "0123456789abcdef", Sinks: []string{"söke: http https://example.org"}, Routes: []string{`topic a"b to söke`}, Topics: []string{"a"}, Membership: storage.Standby}
	full := storage.Config{Print: "fedcba9876543210", Sinks: []string{strings.Repeat("x", storage.MaxConfig-41)}}
	if len(full.Text()) != storage.MaxConfig {
		t.Fatalf("the largest configuration has %d bytes", len(full.Text()))
	}
	for _, setup := range []storage.Config{first, full, {}} {
		if got := told(a.tell(setup), "a"); got != setup.Text() {
			t.Errorf("relay a sent the configuration %s and received %s for itself", setup.Text(), got)
		}
		if got := told(b.tell(first), "a"); got != setup.Text() {
			t.Errorf("relay a sent the configuration %s, and relay b received %s", setup.Text(), got)
		}
		if status := a.status(); status.Relays[0].Config.Text() != setup.Text() || status.Relays[1].Config.Text() != first.Text() {
			t.Errorf("the configurations in the status differ from those in the heartbeats: %+v", status.Relays)
		}
	}
}

// The first relay sets the claim mode. The mode can be changed only while no relay that uses the old
// mode is alive.
func claimModeChanges(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	for _, claims := range [][2]storage.Claim{{storage.ByLanes, storage.ByRows}, {storage.ByRows, storage.ByLanes}} {
		ours, other := claims[0], claims[1]
		a.wantAdopt(ours, nil)
		a.wantAdopt(ours, nil)
		a.beat(ours, long)
		b.wantAdopt(ours, nil)
		b.wantAdopt(other, storage.ErrOtherClaim)
		b.wantAdopt(other, storage.ErrOtherClaim) // still refused
		if got := a.status().Claim; got != ours {
			t.Errorf("the table is claimed by %q, want %q", got, ours)
		}
		b.wantBeatRefused(other)
		a.beat(ours, short) // relay a expires
		eventually(t, "the claim mode has changed", func() bool {
			err := b.store.SetClaimMode(t.Context(), other)
			if err != nil && !errors.Is(err, storage.ErrOtherClaim) && !errors.Is(err, storage.ErrBusy) {
				t.Fatalf("set the claim mode %s: %v", other, err)
			}
			return err == nil
		})
		a.wantBeatRefused(ours)
		if got := a.status().Claim; got != other {
			t.Errorf("the table is claimed by %q, want %q", got, other)
		}
	}
}

// wantBeatRefused requires that the heartbeat of a relay with this claim mode is refused.
func (w *worker) wantBeatRefused(claim storage.Claim) {
	w.Helper()
	err := again(w, func(ctx context.Context) error {
		_, err := w.store.Heartbeat(ctx, storage.Identity{Name: "refused", Claim: claim}, long)
		return err
	})
	if !errors.Is(err, storage.ErrOtherClaim) {
		w.Fatalf("a heartbeat of a relay that claims by %s: %v, want %v", claim, err, storage.ErrOtherClaim)
	}
}

func (w *worker) wantAdopt(claim storage.Claim, want error) {
	w.Helper()
	if err := again(w, func(ctx context.Context) error { return w.store.SetClaimMode(ctx, claim) }); !errors.Is(err, want) {
		w.Fatalf("%s sets the claim mode %s: %v, want %v", w.name, claim, err, want)
	}
}

// A change of the claim mode resets marks and claims. Otherwise rows could be moved back below a mark,
// where no relay reads them, or a claim could remain that no relay frees.
func claimModeChangeResetsMarks(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.wantAdopt(storage.ByLanes, nil)
	back := write(t, table, plain(1)...)[0]
	a.mustSettle(a.as(storage.StateRetry, a.row(back)))
	var renewals []storage.Renewal
	for lane := range storage.Lanes {
		renewals = append(renewals, storage.Renewal{Lease: a.lease(lane), Marks: storage.Marks{Main: back}})
	}
	a.release(renewals...)
	claimed := write(t, table, plain(1)...)[0]

	b := byRows(t, table, "b")
	if got := ids(b.claim(storage.ClaimRequest{Token: "dead", Limit: 1})); !slices.Equal(got, []int64{claimed}) {
		t.Fatalf("claimed %v, want row %d", got, claimed)
	}
	b.freed(1) // the retry is moved back, below the marks

	c := hire(t, table, "c")
	c.wantAdopt(storage.ByLanes, nil)
	var lowest int64
	for _, grant := range c.acquire(storage.Lanes, long) {
		lowest = max(lowest, grant.Marks.Main)
	}
	if lowest >= back {
		t.Errorf("after claiming by rows a lane has the mark %d, but row %d is not finished", lowest, back)
	}
	wantIDs(t, "pending", ids(c.pending()), []int64{back, claimed})
	c.mustSettle(c.allAs(storage.StateDone, c.pending())...)
}

// When claiming by rows, no message holds its key. If the mode changes to rows before a skip or
// discard is carried out, the message is parked and not sent.
func claimModeChangeEndsHolds(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.wantAdopt(storage.ByLanes, nil)
	var rows []storage.Row
	for _, key := range []string{"holds", "skip", "discard"} {
		rows = append(rows, a.row(write(t, table, keyed(key, 1)...)[0]))
	}
	a.parkHolding(rows...)
	if n := a.skip(storage.Filter{Key: "skip"}) + a.discard(storage.Filter{Key: "discard"}); n != 2 {
		t.Errorf("changed %d rows, want 2", n)
	}
	b := hire(t, table, "b")
	b.wantAdopt(storage.ByRows, nil)
	b.freed(0)
	for _, row := range rows {
		if info := b.info(row.ID); info.State != storage.StateError || info.Holds != storage.NoHold {
			t.Errorf("after the change to claiming by rows, want a parked row that doesn't hold its key: %+v", info)
		}
	}
	if n := b.discard(storage.Filter{}); n != 3 || len(b.list(storage.Filter{})) != 0 {
		t.Errorf("discarded %d rows, want 3 and no row left", n)
	}
}

// After a change of the claim mode, a relay that was considered dead and still uses the old mode can't
// change any row, because its leases and claims are void.
func claimModeChangeFences(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.wantAdopt(storage.ByLanes, nil)
	write(t, table, plain(3)...)
	rows := a.pending()
	b := byRows(t, table, "b")
	if got, want := a.settle(a.allAs(storage.StateDone, rows)...), (storage.Settled{Fenced: 3}); got != want {
		t.Errorf("settled by lanes on a table that is claimed by rows: %+v, want %+v", got, want)
	}
	if held := a.renew(long, storage.Renewal{Lease: a.lease(1)}); len(held) != 0 {
		t.Errorf("renewed %+v on a table that is claimed by rows", held)
	}
	claims := b.claim(storage.ClaimRequest{Token: "one", Limit: 3})
	c := hire(t, table, "c")
	c.wantAdopt(storage.ByLanes, nil)
	if got, want := b.settle(allClaimed("one", storage.StateDone, claims)...), (storage.Settled{Fenced: 3}); got != want {
		t.Errorf("settled by rows on a table that is claimed by lanes: %+v, want %+v", got, want)
	}
	c.takeOver(storage.Lanes, long)
	wantIDs(t, "pending", ids(c.pending()), ids(rows))
}

// A relay that claims by rows was suspended while the claim mode was changed to lanes. When the relay
// continues, it can't claim, extend or free rows. Nor can it move deferred rows back, since these rows
// would be below the marks of other relays.
func claimModeChangeEndsClaims(t testing.TB, table Table) {
	a, b := byRows(t, table, "a"), hire(t, table, "b")
	written := write(t, table, plain(6)...)
	old := a.claim(storage.ClaimRequest{Token: "old", Limit: 5})
	retry, scheduled := claimed("old", storage.StateRetry, old[0]), claimed("old", storage.StateScheduled, old[1])
	a.mustSettle(retry, scheduled) // both are due immediately
	a.beat(storage.ByRows, short)
	eventually(t, "the claim mode is lanes", func() bool { return b.store.SetClaimMode(t.Context(), storage.ByLanes) == nil })

	wantOtherClaim := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		if err := again(t, call); !errors.Is(err, storage.ErrOtherClaim) {
			t.Errorf("%s on a table that is claimed by lanes: %v, want %v", what, err, storage.ErrOtherClaim)
		}
	}
	for _, unprompted := range []bool{true, false} {
		wantOtherClaim("claim", func(ctx context.Context) error {
			rows, err := a.store.Claim(ctx, storage.ClaimRequest{Relay: "a", Token: "old", TTL: long, Limit: 5, Pick: storage.Oldest, Unprompted: unprompted})
			if len(rows) != 0 {
				t.Errorf("claimed %v on a table that is claimed by lanes", ids(rows))
			}
			return err
		})
	}
	wantOtherClaim("extend", func(ctx context.Context) error {
		still, err := a.store.Extend(ctx, "old", ids(old), long)
		if len(still) != 0 {
			t.Errorf("extended %v on a table that is claimed by lanes", still)
		}
		return err
	})
	wantOtherClaim("reclaim", func(ctx context.Context) error {
		freed, err := a.store.Reclaim(ctx, plenty)
		if freed != 0 {
			t.Errorf("reclaimed %d rows on a table that is claimed by lanes", freed)
		}
		return err
	})
	for _, state := range append(states(), storage.StatePending) {
		if got, want := a.settle(allClaimed("old", state, old[2:])...), (storage.Settled{Fenced: 3}); got != want {
			t.Errorf("settled as %s with a token from before the change: %+v, want %+v", state, got, want)
		}
	}
	if got := b.status().Claim; got != storage.ByLanes {
		t.Errorf("the table is claimed by %q, want lanes", got)
	}
	b.wantState(storage.StateRetry, retry.ID)
	b.takeOver(storage.Lanes, long)
	wantIDs(t, "due", ids(b.due()), []int64{old[0].ID, old[1].ID})
	wantIDs(t, "pending", ids(b.pending()), written[2:])
}

// If the claim mode is changed while a settlement by token runs, the settlement either completes before the change, or changes no
// row whose token the change has removed. The settlement has no fence; only its token protects it.
func claimModeChangeDuringSettles(t testing.TB, table Table) {
	const count = 20
	a, b := byRows(t, table, "a"), hire(t, table, "b")
	for round := range 5 {
		a.wantAdopt(storage.ByRows, nil)
		write(t, table, plain(count)...)
		token := newToken()
		rows := a.claim(storage.ClaimRequest{Token: token, Limit: count})
		state := append(states(), storage.StatePending)[round]
		var settled storage.Settled
		var both sync.WaitGroup
		both.Go(func() {
			if err := again(t, func(ctx context.Context) (err error) {
				settled, err = a.store.Settle(ctx, a.name, true, allClaimed(token, state, rows))
				return err
			}); err != nil {
				t.Errorf("settle as %s during a change of the claim mode: %v", state, err)
			}
		})
		both.Go(func() {
			if err := again(t, func(ctx context.Context) error { return b.store.SetClaimMode(ctx, storage.ByLanes) }); err != nil {
				t.Errorf("change the claim mode during a settlement: %v", err)
			}
		})
		both.Wait()
		if settled.Changed+settled.Fenced != count {
			t.Errorf("settled as %s during a change of the claim mode: %+v, want %d rows in all", state, settled, count)
		}
		if late := a.settle(allClaimed(token, storage.StateDone, rows)...); late.Changed != 0 {
			t.Errorf("settled after the change of the claim mode: %+v", late)
		}
		if claimed := b.status().Counts[storage.StateClaimed]; claimed != 0 {
			t.Errorf("%d rows are claimed after the change of the claim mode", claimed)
		}
		if state != storage.StatePending {
			moved := 0
			for _, row := range rows {
				if b.info(row.ID).State != storage.StatePending {
					moved++
				}
			}
			if state != storage.StateRetry && state != storage.StateScheduled && moved != settled.Changed {
				t.Errorf("%d rows are %s, but Settle returned %+v", moved, state, settled)
			}
		}
		b.takeOver(storage.Lanes, long)
		b.mustSettle(b.allAs(storage.StateDone, b.pending())...)
		for _, row := range b.due() {
			b.mustSettle(b.as(storage.StateDone, row))
		}
	}
}

// bury calls FenceRelay.
func (w *worker) bury(name string, claim storage.Claim) {
	w.Helper()
	w.do("fence a relay", func(ctx context.Context) error { return w.store.FenceRelay(ctx, name, claim) })
}

// FenceRelay ends the leases of a dead relay immediately, as if they had expired, and counts a crash.
// Other relays keep their leases. If the fenced relay is alive after all, it can't renew its leases.
func fencingARelayEndsItsLeases(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	a.beat(storage.ByLanes, long)
	c.beat(storage.ByLanes, long)
	c.takeOver(4, long)
	mine := a.takeOver(storage.Lanes-4, long)
	for range 2 { // the call may be repeated
		b.bury("a", storage.ByLanes)
	}
	b.wantCensus("b", "c")
	var renewals []storage.Renewal
	for _, g := range mine {
		renewals = append(renewals, storage.Renewal{Lease: a.lease(g.Lane)})
	}
	if kept := a.renew(long, renewals...); len(kept) != 0 { // if a fenced relay could renew, no other relay would get its lanes while it is alive
		t.Errorf("a fenced relay renewed %d leases before other relays had leased its lanes", len(kept))
	}
	taken := b.acquire(storage.Lanes, long)
	if len(taken) != len(mine) {
		t.Errorf("the dead relay had %d lanes, and %d were free immediately", len(mine), len(taken))
	}
	for _, g := range taken {
		if g.Crashes != 1 {
			t.Errorf("lane %d has %d crashes, want 1", g.Lane, g.Crashes)
		}
		if kept := a.renew(long, storage.Renewal{Lease: a.lease(g.Lane)}); len(kept) != 0 {
			t.Errorf("a fenced relay renewed its lease of lane %d", g.Lane)
		}
	}
	c.renewAll(long)
}

// When claiming by rows, FenceRelay ends the dead relay's claims and no others. The rows become
// free again, and the crash count of each row increases by one.
func fencingARelayEndsItsClaims(t testing.TB, table Table) {
	a, b := byRows(t, table, "a"), byRows(t, table, "b")
	write(t, table, plain(3)...)
	mine := a.claim(storage.ClaimRequest{Token: "of a", Limit: 2})
	others := b.claim(storage.ClaimRequest{Token: "of b", Limit: 1})
	if len(mine) != 2 || len(others) != 1 {
		t.Fatalf("%d and %d rows were claimed, want 2 and 1", len(mine), len(others))
	}
	b.bury("a", storage.ByRows)
	b.freed(2)
	for _, row := range b.claim(storage.ClaimRequest{Token: "again", Limit: 3}) {
		if row.Crashes != 1 || row.ID == others[0].ID {
			t.Errorf("claimed row %d with %d crashes, want only rows of the fenced relay, with 1 crash", row.ID, row.Crashes)
		}
	}
}
