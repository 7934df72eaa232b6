package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// unchecked returns INSERT statements whose rows violate a constraint of the table, except for one row whose counters can't be
// increased. The kind of database must be one whose sessions can switch constraints off.
func unchecked(kind string) (statements []string) {
	insert := func(topic, key, columns, values string) {
		statements = append(statements, fmt.Sprintf("INSERT INTO outbox (topic, message_key, %s) VALUES ('%s', '%s', %s)", columns, topic, key, values))
	}
	insert("", "bad", "payload_text", "'no topic'")
	insert("t", strings.Repeat("k", 256), "payload_text", "'a long key'")
	insert("t", "bad", "payload, payload_text", "'1', '2'")
	insert("t", "bad", "headers", "'[]'")
	insert("t", "bad", "headers", "'{'")
	insert("t", "bad", "attempts", "-1")
	insert("t", "bad", "crashes", "-1")
	insert("t", "bad", "attempts, crashes", "2147483647, 2147483647") // no violation, but these counters can't be increased
	if kind == testdb.SQLite {
		insert("t", "bad", "priority", "40000")
	}
	for _, bad := range malformed(kind) {
		insert("t", "bad", bad.column, bad.value)
	}
	return statements
}

// pastConstraints runs a test on each database whose sessions can switch constraints off, with a table and such a session.
func pastConstraints(t *testing.T, test func(t *testing.T, table table, session *sql.DB, claim storage.Claim)) {
	t.Parallel()
	for _, target := range allTargets() {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			off := map[string]string{testdb.SQLite: "PRAGMA ignore_check_constraints = ON", testdb.MariaDB: "SET check_constraint_checks = 0, sql_mode = 'ALLOW_INVALID_DATES'"}[target.Kind]
			if off == "" {
				continue
			}
			t.Run(target.Name+"/"+string(claim), func(t *testing.T) {
				t.Parallel()
				table := open(t, target)
				session := table.OpenAnother(t)
				session.SetMaxOpenConns(1)
				exec(t, session, off)
				must(t, table.open(t).SetClaimMode(t.Context(), claim))
				test(t, table, session, claim)
			})
		}
	}
}

// drainTo drains the table to a handler.
func (table table) drainTo(t *testing.T, claim storage.Claim, handler inproc.Handler) error {
	t.Helper()
	r, err := relay.New(table.Store(t), relay.Options{
		Logger: slog.New(slog.DiscardHandler), Claim: claim, Drain: true, Poll: time.Millisecond,
		Sinks: map[string]relay.SinkOptions{"main": {Sink: inproc.Func(handler), BreakerThreshold: -1, ParkRateLimit: -1, JudgeAloneAfter: -1}},
	})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	return r.Run(ctx)
}

// Rows that violate the constraints are delivered or parked. The other messages are reclaimed after their relay has died, and are
// delivered, requeued and replayed, as if the bad rows didn't exist.
func TestRowsThatViolateConstraintsDelayNoOthers(t *testing.T) {
	pastConstraints(t, func(t *testing.T, table table, session *sql.DB, claim storage.Claim) {
		const good = 20
		bad := unchecked(table.Kind)
		for _, statement := range bad {
			exec(t, session, statement)
		}
		for i := range good {
			exec(t, table.DB, fmt.Sprintf("INSERT INTO outbox (topic, message_key) VALUES ('good', 'key %d')", i))
		}
		all := len(bad) + good
		store := table.open(t)
		if claim == storage.ByRows {
			_, err := store.Heartbeat(t.Context(), storage.Identity{Name: "dies", Claim: claim}, time.Minute)
			must(t, err)
			claimed, err := store.Claim(t.Context(), storage.ClaimRequest{Relay: "dies", Token: "token", TTL: time.Microsecond, Limit: 100, Pick: storage.Oldest})
			if err != nil || len(claimed) != all {
				t.Fatalf("%d rows were claimed, %v; want %d", len(claimed), err, all)
			}
			for freed := 0; freed < all; {
				n, err := store.Reclaim(t.Context(), 100)
				must(t, err)
				freed += n
			}
		}
		must(t, table.drainTo(t, claim, func(context.Context, sinks.Message) error { return inproc.Permanent(errors.New("no")) }))
		if requeued, err := store.Requeue(t.Context(), storage.Filter{State: storage.StateError}); err != nil || requeued != all {
			t.Fatalf("%d rows were requeued, %v; want %d", requeued, err, all)
		}
		var mu sync.Mutex
		got, others := 0, 0
		must(t, table.drainTo(t, claim, func(_ context.Context, m sinks.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if others++; m.Topic == "good" {
				got, others = got+1, others-1
			}
			return nil
		}))
		parked, err := store.List(t.Context(), storage.Filter{State: storage.StateError, Limit: 100})
		if err != nil || got != good || others+len(parked) != len(bad) {
			t.Errorf("%d of %d good messages and %d of %d others were delivered, and %d are parked, %v", got, good, others, len(bad), len(parked), err)
		}
		for _, message := range parked {
			if !strings.Contains(message.LastError, "invalid: ") && !strings.Contains(message.LastError, "constraints refuse the row: ") {
				t.Errorf("message %d is parked with %q", message.ID, message.LastError)
			}
		}
		replay, err := store.StoreReplay(t.Context(), nil, storage.Replay{Name: "again"})
		must(t, err)
		for !replay.Finished {
			replay, _, err = store.Replay(t.Context(), replay, 100)
			must(t, err)
		}
		if replay.Written < good || replay.Written == int64(got+others) && table.Kind == testdb.MariaDB || replay.Written+replay.Refused != int64(got+others) {
			t.Errorf("the replay is %+v, want %d messages, %d of them good", replay, got+others, good)
		}
		must(t, table.drainTo(t, claim, func(context.Context, sinks.Message) error { return nil }))
	})
}

// A row whose message id or lane no settlement can name is never sent. Many such rows don't delay the delivery of others. A drain
// fails because they remain.
func TestRowsThatCannotBeSettledDelayNoOthers(t *testing.T) {
	pastConstraints(t, func(t *testing.T, table table, session *sql.DB, claim storage.Claim) {
		const bad, good = 15, 20
		for i := range bad {
			exec(t, session, fmt.Sprintf("INSERT INTO outbox (topic, message_key, message_id) VALUES ('bad', 'bad %d', 'no uuid''%d')", i, i))
		}
		if table.Kind == testdb.MariaDB {
			exec(t, session, "INSERT INTO outbox (topic, message_key, lane) VALUES ('bad', 'bad', -1), ('bad', 'bad', 64)")
		}
		for i := range good {
			exec(t, table.DB, fmt.Sprintf("INSERT INTO outbox (topic, message_key) VALUES ('good', 'key %d')", i))
		}
		var mu sync.Mutex
		got := map[string]int{}
		err := table.drainTo(t, claim, func(_ context.Context, m sinks.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got[m.Topic]++
			return nil
		})
		if got["good"] != good || got["bad"] != 0 || err == nil || !strings.Contains(err.Error(), "were not written") && !strings.Contains(err.Error(), "can't read or claim") {
			t.Errorf("%d of %d good messages were delivered, and %d bad ones; the drain returned %v", got["good"], good, got["bad"], err)
		}
	})
}
