package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

func (w *worker) beat(claim relay.Claim, ttl time.Duration) (census relay.Census) {
	w.Helper()
	w.do("beat", func(ctx context.Context) (err error) {
		census, err = w.store.Beat(ctx, relay.Identity{Name: w.name, Host: "host of " + w.name, Version: "v1", Claim: claim}, ttl)
		return err
	})
	return census
}

func (w *worker) leave() {
	w.Helper()
	w.do("leave", func(ctx context.Context) error { return w.store.Leave(ctx, w.name) })
}

func (w *worker) wantCensus(want ...string) {
	w.Helper()
	if got := w.beat(relay.ByLanes, long).Relays; !slices.Equal(got, want) {
		w.Errorf("%s sees the relays %v, want %v", w.name, got, want)
	}
}

// A relay lives from its first beat until it leaves, or as long as it said
// after the last one.
func census(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	c.wantCensus("c")
	a.wantCensus("a", "c")
	start := time.Now()
	b.beat(relay.ByLanes, short)
	a.wantCensus("a", "b", "c")
	c.leave()
	eventually(t, "b is dead", func() bool { return len(a.beat(relay.ByLanes, long).Relays) == 1 })
	if waited := time.Since(start); waited < short-slack {
		t.Errorf("a relay that beat for %v was dead after %v", short, waited)
	}
	c.leave() // once more
	b.wantCensus("a", "b")
}

// The way of claiming is the first relay's; it changes only while none lives
// that claims the old way.
func adoption(t testing.TB, table Table) {
	a, b := hire(t, table, "a"), hire(t, table, "b")
	for _, claims := range [][2]relay.Claim{{relay.ByLanes, relay.ByRows}, {relay.ByRows, relay.ByLanes}} {
		ours, other := claims[0], claims[1]
		a.wantAdopt(ours, nil)
		a.wantAdopt(ours, nil)
		a.beat(ours, long)
		b.wantAdopt(ours, nil)
		b.wantAdopt(other, relay.ErrOtherClaim)
		b.wantAdopt(other, relay.ErrOtherClaim) // still
		if got := a.status().Claim; got != ours {
			t.Errorf("the table is claimed by %q, want %q", got, ours)
		}
		b.wantBeatRefused(other)
		a.beat(ours, short) // and dies
		eventually(t, "the other way is adopted", func() bool {
			err := b.store.Adopt(t.Context(), other)
			if err != nil && !errors.Is(err, relay.ErrOtherClaim) && !errors.Is(err, relay.ErrBusy) {
				t.Fatalf("adopt %s: %v", other, err)
			}
			return err == nil
		})
		a.wantBeatRefused(ours)
		if got := a.status().Claim; got != other {
			t.Errorf("the table is claimed by %q, want %q", got, other)
		}
	}
}

// wantBeatRefused requires that a relay which claims so can't live here.
func (w *worker) wantBeatRefused(claim relay.Claim) {
	w.Helper()
	err := again(w, func(ctx context.Context) error {
		_, err := w.store.Beat(ctx, relay.Identity{Name: "refused", Claim: claim}, long)
		return err
	})
	if !errors.Is(err, relay.ErrOtherClaim) {
		w.Fatalf("a beat of a relay that claims by %s: %v, want %v", claim, err, relay.ErrOtherClaim)
	}
}

func (w *worker) wantAdopt(claim relay.Claim, want error) {
	w.Helper()
	if err := again(w, func(ctx context.Context) error { return w.store.Adopt(ctx, claim) }); !errors.Is(err, want) {
		w.Fatalf("%s adopts %s: %v, want %v", w.name, claim, err, want)
	}
}

// What one way of claiming has left doesn't mislead the other: neither marks
// above rows that come back below them, nor claims that nobody frees.
func adoptionForgets(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.wantAdopt(relay.ByLanes, nil)
	back := write(t, table, plain(1)...)[0]
	a.mustSettle(a.as(relay.StateRetry, a.row(back)))
	var renewals []relay.Renewal
	for lane := range relay.Lanes {
		renewals = append(renewals, relay.Renewal{Lease: a.lease(lane), Marks: relay.Marks{Main: back}})
	}
	a.release(renewals...)
	claimed := write(t, table, plain(1)...)[0]

	b := byRows(t, table, "b")
	if got := ids(b.claim(relay.ClaimRequest{Token: "dead", Limit: 1})); !slices.Equal(got, []int64{claimed}) {
		t.Fatalf("claimed %v, want row %d", got, claimed)
	}
	b.freed(1) // the retry comes back, below the marks

	c := hire(t, table, "c")
	c.wantAdopt(relay.ByLanes, nil)
	var lowest int64
	for _, grant := range c.acquire(relay.Lanes, long) {
		lowest = max(lowest, grant.Marks.Main)
	}
	if lowest >= back {
		t.Errorf("after claiming by rows a lane is read from %d, and row %d is there", lowest, back)
	}
	wantIDs(t, "pending", ids(c.pending()), []int64{back, claimed})
	c.mustSettle(c.allAs(relay.StateDone, c.pending())...)
}

// Who claimed the old way and was taken for dead changes nothing any more: its
// leases, and its claims, are nobody's.
func adoptionFences(t testing.TB, table Table) {
	a := holder(t, table, "a")
	a.wantAdopt(relay.ByLanes, nil)
	write(t, table, plain(3)...)
	rows := a.pending()
	b := byRows(t, table, "b")
	if got, want := a.settle(a.allAs(relay.StateDone, rows)...), (relay.Settled{Fenced: 3}); got != want {
		t.Errorf("settled by lanes on a table that is claimed by rows: %+v, want %+v", got, want)
	}
	if held := a.renew(long, relay.Renewal{Lease: a.lease(1)}); len(held) != 0 {
		t.Errorf("renewed %+v on a table that is claimed by rows", held)
	}
	claims := b.claim(relay.ClaimRequest{Token: "one", Limit: 3})
	c := hire(t, table, "c")
	c.wantAdopt(relay.ByLanes, nil)
	if got, want := b.settle(allClaimed("one", relay.StateDone, claims)...), (relay.Settled{Fenced: 3}); got != want {
		t.Errorf("settled by rows on a table that is claimed by lanes: %+v, want %+v", got, want)
	}
	c.takeOver(relay.Lanes, long)
	wantIDs(t, "pending", ids(c.pending()), ids(rows))
}
