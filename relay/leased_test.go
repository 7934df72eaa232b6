package relay_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// slowScans is a store whose scans take time: always the same, or in proportion to the number of ids, as on a server whose
// cache is empty.
type slowScans struct {
	*memstore.Store
	takes func(ids int64) time.Duration
}

func (s slowScans) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	most := int64(0)
	for _, p := range positions {
		most = max(most, p.Until-p.After)
	}
	select {
	case <-ctx.Done():
		return nil, nil, errors.New("the scan takes too long")
	case <-time.After(s.takes(most)):
	}
	return s.Store.Scan(ctx, positions, except, keep)
}

// New rows in a newly leased lane wait at most for the first steps of the sweep below the lane's mark.
func TestLeasedLaneWaitsBrieflyForItsSweep(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]func(int64) time.Duration{
		"many steps": func(int64) time.Duration { return 50 * time.Millisecond },
		"long steps": func(ids int64) time.Duration { return time.Duration(ids) * 50 * time.Microsecond }, // 3.3 s for 65,536 ids
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				db.Renumber(100_000_000)
				write(db, "orders", "a", 1)
				_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
				time.Sleep(20 * time.Second)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				_, stop = start(t, slowScans{db.Store(), takes}, relay.Options{Name: "next", Sinks: to(sink)})
				write(db, "orders", "b", 1)
				time.Sleep(400 * time.Millisecond)
				if n := len(sink.ids()); n != 2 {
					t.Errorf("%d messages were delivered 0.4 s after the lanes were leased, want 2", n)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The ids below a lane's mark are swept once when the lane is leased. The next sweep follows only after a pause.
func TestLeasedLaneIsSweptOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ids = 100_000_000
		db, sink := memstore.New(), &recorder{}
		db.Renumber(ids)
		write(db, "orders", "a", 1)
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink)})
		time.Sleep(20 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		var walked atomic.Int64
		_, stop = start(t, slowScans{db.Store(), func(ids int64) time.Duration { walked.Add(ids); return 0 }}, relay.Options{Name: "next", Sinks: to(sink)})
		for _, at := range []struct {
			after time.Duration
			times int64
		}{{20 * time.Second, 1}, {20 * time.Second, 2}} {
			time.Sleep(at.after)
			if got := (walked.Load() + ids/2) / ids; got != at.times {
				t.Errorf("all ids were walked over %d times, want %d", got, at.times)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Lanes that are leased again because the server may have lost commits are read immediately, without the pause after a failed
// read.
func TestLanesOfAnotherEpochAreReadImmediately(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const poll = 10 * time.Second
		db, sink := memstore.New(), &recorder{}
		write(db, "orders", "a", 1)
		_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), Poll: poll})
		time.Sleep(3*poll + poll/2)
		db.Save()()
		write(db, "orders", "b", 1)
		time.Sleep(poll + time.Second)
		if n := len(sink.ids()); n != 2 {
			t.Errorf("%d messages were delivered after a poll, want 2", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// If a step of a sweep takes too long, it is cancelled, and the next steps are smaller. This is reported as a failure only if
// even the smallest step takes too long.
func TestSlowSweepContinuesInShorterSteps(t *testing.T) {
	t.Parallel()
	const ids = 100_000_000
	for name, c := range map[string]struct {
		bearable int64 // the maximum number of ids in a step that doesn't take too long
		trouble  bool
	}{
		"a million ids at a time": {1_000_000, false},
		"none":                    {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink, fails := memstore.New(), &recorder{}, &failures{stage: "sweep"}
				db.Renumber(ids)
				write(db, "orders", "a", 1)
				var walked atomic.Int64
				takes := func(ids int64) time.Duration {
					if ids > c.bearable {
						return time.Hour
					}
					walked.Add(ids)
					return 0
				}
				_, stop := start(t, slowScans{db.Store(), takes}, relay.Options{Sinks: to(sink), Observer: fails})
				time.Sleep(2 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if done := walked.Load() >= ids; done == c.trouble {
					t.Errorf("%d of %d ids were walked over", walked.Load(), ids)
				}
				if n := fails.count.Load(); n > 0 != c.trouble {
					t.Errorf("%d steps were reported as failures", n)
				}
			})
		})
	}
}
