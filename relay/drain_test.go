package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// hidesDue is a hidesRows whose Due doesn't return rows of topics that begin with "hidden" either.
type hidesDue struct{ hidesRows }

func (s hidesDue) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
	rows, next, err := s.Store.Due(ctx, lanes, after, limit, maxBytes)
	return slices.DeleteFunc(rows, hidden), next, err
}

// retryNow turns all messages into retries that are due.
func retryNow(t *testing.T, store *memstore.Store) {
	t.Helper()
	grants, err := store.Acquire(t.Context(), "before", storage.Lanes, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, grant := range grants {
		page, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: grant.Lane, Until: math.MaxInt64}}, Limit: 100, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			retry := storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: grant.Fence, State: storage.StateRetry, Attempts: 1}
			if settled, err := store.Settle(t.Context(), "before", true, []storage.Settlement{retry}); err != nil || settled.Fenced > 0 {
				t.Fatal(settled, err)
			}
		}
		if err := store.Release(t.Context(), "before", []storage.Renewal{{Lease: grant.Lease}}); err != nil {
			t.Fatal(err)
		}
	}
}

// A drain fails if it leaves a due message that no read finds. It fails even if the table also has other messages of the
// same key, or more messages that don't count than fit into one page of the survey.
func TestDrainFindsHiddenMessages(t *testing.T) {
	t.Parallel()
	wait := func(m sinks.Message) sinks.Outcome {
		if m.Key == "waits" {
			return sinks.Postpone(sinks.ReasonBusy, "not yet", time.Hour)
		}
		return sinks.Ok("")
	}
	twoSinks := func(sink sinks.Sink) relay.Options {
		return relay.Options{Sinks: map[string]relay.SinkOptions{"main": {Sink: sink}, "other": {Sink: sink}}, Routes: []relay.Route{{Topic: "hidden", Sink: "other"}, {Topic: "t", Sink: "main"}}}
	}
	tests := []struct {
		name    string
		options func(sinks.Sink) relay.Options
		left    func(t *testing.T, db *memstore.DB)
		row     int64 // the row that the error names; 0: no error
	}{
		{"behind messages that a key holds", func(sink sinks.Sink) relay.Options { return relay.Options{Sinks: to(sink)} }, func(t *testing.T, db *memstore.DB) {
			write(db, "t", "waits", 3_001)
			write(db, "hidden", "one", 1)
		}, 3_002},
		{"behind messages of other topics", func(sink sinks.Sink) relay.Options {
			return relay.Options{Claim: storage.ByRows, Topics: []string{"hidden"}, Sinks: to(sink)}
		}, func(t *testing.T, db *memstore.DB) {
			write(db, "t", "k", 3_001)
			write(db, "hidden", "one", 1)
		}, 3_002},
		{"whose key waits at another sink", twoSinks, func(t *testing.T, db *memstore.DB) {
			write(db, "t", "waits", 1)
			write(db, "hidden", "waits", 1)
		}, 2},
		{"whose key waits at its own sink", func(sink sinks.Sink) relay.Options { return relay.Options{Sinks: to(sink)} }, func(t *testing.T, db *memstore.DB) {
			write(db, "t", "waits", 1)
			write(db, "hidden", "waits", 1)
		}, 0},
		{"beside another one of its key that is due again", func(sink sinks.Sink) relay.Options { return relay.Options{Sinks: to(sink)} }, func(t *testing.T, db *memstore.DB) {
			write(db, "hidden", "k", 1)
			write(db, "hidden too", "k", 1)
			retryNow(t, db.Store())
		}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{answer: wait}
				test.left(t, db)
				options := test.options(sink)
				options.Drain, options.Logger = true, slog.New(slog.DiscardHandler)
				r, err := relay.New(hidesDue{hidesRows{db.Store()}}, options)
				if err != nil {
					t.Fatal(err)
				}
				err = r.Run(t.Context())
				if test.row == 0 && err != nil || test.row != 0 && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row %d ", test.row))) {
					t.Errorf("the drain returned %v, want row %d named", err, test.row)
				}
			})
		})
	}
}

// failsToSurvey is a store whose first calls of Remaining fail.
type failsToSurvey struct {
	*memstore.Store
	times int
}

func (s *failsToSurvey) Remaining(ctx context.Context, limit int, each func(*storage.Row) bool) error {
	if s.times--; s.times >= 0 {
		return errors.New("refused")
	}
	return s.Store.Remaining(ctx, limit, each)
}

// A drain retries failing surveys, and fails if they have failed for ten seconds.
func TestDrainFailsIfSurveysFail(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, times := range []int{5, math.MaxInt} {
			t.Run(fmt.Sprint(claim, times), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, sink := memstore.New(), &recorder{}
					write(db, "t", "k", 10)
					r, err := relay.New(&failsToSurvey{db.Store(), times}, relay.Options{Claim: claim, Sinks: to(sink), Drain: true, Logger: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Fatal(err)
					}
					ctx, end := context.WithTimeout(t.Context(), time.Hour)
					defer end()
					began := time.Now()
					err = r.Run(ctx)
					if took := time.Since(began); took > time.Minute || (times > 5) != (err != nil && strings.Contains(err.Error(), "refused")) || sink.counted("t") != 10 {
						t.Errorf("the drain delivered %d of 10 messages in %v and returned %v", sink.counted("t"), took, err)
					}
				})
			})
		}
	}
}

// A drain ends even if its reads take longer than the poll interval.
func TestDrainEndsThoughReadsTakeLongerThanAPoll(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sink := memstore.New(), &recorder{}
				write(db, "t", "k", 10)
				store := db.Store()
				store.Hooks.Fail = func(ctx context.Context, op memstore.Op) error {
					if op == memstore.OpRead || op == memstore.OpClaim {
						time.Sleep(50 * time.Millisecond)
					}
					return nil
				}
				r, err := relay.New(store, relay.Options{Claim: claim, Poll: 10 * time.Millisecond, Sinks: to(sink), Drain: true, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithTimeout(t.Context(), time.Minute)
				defer end()
				began := time.Now()
				err = r.Run(ctx)
				if took := time.Since(began); err != nil || ctx.Err() != nil || sink.counted("t") != 10 {
					t.Errorf("the drain delivered %d of 10 messages in %v and returned %v", sink.counted("t"), took, err)
				}
			})
		})
	}
}
