package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Several relays that acquire lanes concurrently share them: each lane has one owner, and no relay
// gets more lanes than it requested.
func acquireGivesEachLaneToOneRelay(t testing.TB, table Table) {
	const relays, count = 8, 5
	var mu sync.Mutex
	owners := map[int]string{}
	var all sync.WaitGroup
	for i := range relays {
		name, store := string(rune('a'+i)), table.Store(t)
		all.Go(func() {
			for got := count; got == count; {
				var grants []storage.Grant
				if err := again(t, func(ctx context.Context) (err error) {
					grants, err = store.Acquire(ctx, name, count, long)
					return err
				}); err != nil {
					t.Errorf("acquire: %v", err)
				}
				if got = len(grants); got > count {
					t.Errorf("requested %d lanes and got %d", count, got)
				}
				mu.Lock()
				for _, grant := range grants {
					if other, taken := owners[grant.Lane]; taken {
						t.Errorf("lane %d was granted to %s and to %s", grant.Lane, other, name)
					}
					owners[grant.Lane] = name
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	last := hire(t, table, "last")
	for _, grant := range last.acquire(storage.Lanes, long) {
		if other, taken := owners[grant.Lane]; taken {
			t.Errorf("lane %d was granted to %s and to the last relay", grant.Lane, other)
		}
		owners[grant.Lane] = last.name
	}
	if len(owners) != storage.Lanes {
		t.Errorf("%d lanes were granted, want %d", len(owners), storage.Lanes)
	}
}

// No relay gets more lanes than it requested, and no relay gets a lane twice.
func acquireGrantsAtMostTheRequest(t testing.TB, table Table) {
	a := hire(t, table, "a")
	if got := a.acquire(0, long); len(got) != 0 {
		t.Errorf("requested no lane and got %d", len(got))
	}
	if got := a.acquire(3, long); len(got) != 3 {
		t.Errorf("requested 3 lanes and got %d", len(got))
	}
	if got := a.acquire(storage.Lanes, long); len(got) != storage.Lanes-3 {
		t.Errorf("requested the other lanes and got %d, want %d", len(got), storage.Lanes-3)
	}
	if len(a.fences) != storage.Lanes {
		t.Errorf("the relay holds %d different lanes, want %d", len(a.fences), storage.Lanes)
	}
}

// A lane can be taken over only after its lease has ended. Each takeover increases the lane's fence,
// and counts a crash if the last holder didn't release the lane.
func takeoverAfterExpiry(t testing.TB, table Table) {
	a, b, c, d := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c"), hire(t, table, "d")
	start := time.Now()
	wantCrashes(t, a.acquire(storage.Lanes, short), 0)
	wantCrashes(t, b.takeOver(storage.Lanes, short), 1)
	if waited := time.Since(start); waited < short-slack {
		t.Errorf("a lease of %v was taken over after %v", short, waited)
	}
	wantCrashes(t, c.takeOver(storage.Lanes, long), 2)
	if waited := time.Since(start); waited < 2*(short-slack) {
		t.Errorf("two leases of %v were taken over within %v", short, waited)
	}
	for lane := range storage.Lanes {
		if !(a.fences[lane] < b.fences[lane] && b.fences[lane] < c.fences[lane]) {
			t.Errorf("lane %d had the fences %d, %d and %d, want ascending fences", lane, a.fences[lane], b.fences[lane], c.fences[lane])
		}
	}
	c.release(storage.Renewal{Lease: c.lease(7)})
	released := d.acquire(storage.Lanes, long)
	if len(released) != 1 || released[0].Lane != 7 || released[0].Fence <= c.fences[7] {
		t.Fatalf("lane 7 was released with the fence %d; the next relay acquired %+v, want only lane 7 with a higher fence", c.fences[7], released)
	}
	wantCrashes(t, released, 0)
}

func wantCrashes(t testing.TB, grants []storage.Grant, want int) {
	t.Helper()
	for _, grant := range grants {
		if grant.Crashes != want {
			t.Errorf("lane %d was granted with %d crashes, want %d", grant.Lane, grant.Crashes, want)
			return
		}
	}
}

// A renewal with Calm resets the count of crashes.
func calmRenewal(t testing.TB, table Table) {
	a, b, c := hire(t, table, "a"), hire(t, table, "b"), hire(t, table, "c")
	a.acquire(2, short)
	grants := b.takeOverThese(a.anyLane(0), a.anyLane(1))
	calm := storage.Renewal{Lease: grants[0].Lease, Calm: true}
	tense := storage.Renewal{Lease: grants[1].Lease}
	if held := b.renew(short, calm, tense); len(held) != 2 {
		t.Fatalf("a renewal of 2 leases renewed %d", len(held))
	}
	for _, grant := range c.takeOverThese(calm.Lane, tense.Lane) {
		if want := map[int]int{calm.Lane: 1, tense.Lane: 2}[grant.Lane]; grant.Crashes != want {
			t.Errorf("lane %d was granted with %d crashes, want %d", grant.Lane, grant.Crashes, want)
		}
	}
}

// anyLane returns the nth lowest of the worker's lanes, counted from 0.
func (w *worker) anyLane(n int) int {
	var held []int
	for lane := range w.fences {
		held = append(held, lane)
	}
	slices.Sort(held)
	return held[n]
}

// takeOverThese acquires free lanes until it has the given ones.
func (w *worker) takeOverThese(lanes ...int) []storage.Grant {
	w.Helper()
	got := map[int]storage.Grant{}
	eventually(w, w.name+" takes over the lanes", func() bool {
		for _, grant := range w.acquire(storage.Lanes, long) {
			got[grant.Lane] = grant
		}
		return !slices.ContainsFunc(lanes, func(lane int) bool { _, there := got[lane]; return !there })
	})
	grants := make([]storage.Grant, len(lanes))
	for i, lane := range lanes {
		grants[i] = got[lane]
	}
	return grants
}

// Each new lease of a lane increases the fence by a random number. Otherwise a server that has lost its
// last writes could grant a lost fence again.
func fencesGrowByRandomSteps(t testing.TB, table Table) {
	a := hire(t, table, "a")
	var steps []int64
	for last := int64(0); len(steps) < 3; {
		a.acquire(storage.Lanes, long)
		fence := a.fences[7]
		if step := fence - last; step <= 0 || step > storage.MostFenceStep || slices.Contains(steps, step) {
			t.Fatalf("a lane had the fence %d, and then %d; the steps before were %v", last, fence, steps)
		} else {
			steps = append(steps, step)
		}
		last = fence
		a.releaseAll()
	}
}
