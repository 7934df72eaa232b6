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

// slowScans are scans that take a while, all the same or by their ids, as those of a
// server do that was just started.
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

// What is new in a lane that was leased waits for no more than the beginning of a sweep
// of what is below its mark.
func TestALeasedLaneWaitsShortlyForItsSweep(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]func(int64) time.Duration{
		"many steps": func(int64) time.Duration { return 50 * time.Millisecond },
		"long steps": func(ids int64) time.Duration { return time.Duration(ids) * 50 * time.Microsecond }, // of 65,536 ids 3.3 s
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

// What is below a lane's mark is walked over once, when the lane is leased, and not again at once.
func TestALeasedLaneIsSweptOnce(t *testing.T) {
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

// Lanes that are leased anew, as the server may have lost commits, are read at once: there is
// no trouble that a pause would leave time to.
func TestLanesOfAnotherEpochAreReadAtOnce(t *testing.T) {
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

// A step of a sweep that takes too long is cut short, and the next ones are shorter: that is no trouble, unless the
// shortest takes too long, too.
func TestASweepThatTakesTooLongGoesOnInShorterSteps(t *testing.T) {
	t.Parallel()
	const ids = 100_000_000
	for name, c := range map[string]struct {
		bearable int64 // ids of a step that doesn't take too long
		trouble  bool
	}{
		"a million ids at a time": {1_000_000, false},
		"not one":                 {0, true},
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
					t.Errorf("%d steps were told of as trouble", n)
				}
			})
		})
	}
}
