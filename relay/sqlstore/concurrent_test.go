package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// lease acquires all lanes, and returns their rows and fences.
func lease(t *testing.T, table table, name string) (store storage.Store, rows []storage.Row, fences map[int]int64) {
	t.Helper()
	opened := table.open(t)
	grants, err := opened.Acquire(t.Context(), name, storage.Lanes, time.Minute)
	if err != nil || len(grants) != storage.Lanes {
		t.Fatalf("acquired %d lanes, %v", len(grants), err)
	}
	fences = map[int]int64{}
	var positions []storage.Position
	for _, grant := range grants {
		fences[grant.Lane] = grant.Fence
		positions = append(positions, storage.Position{Lane: grant.Lane})
	}
	page, err := opened.Read(t.Context(), storage.ReadRequest{Positions: positions, Limit: 1000, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return opened, page.Rows, fences
}

func done(row storage.Row, fences map[int]int64) storage.Settlement {
	return storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: fences[row.Lane], State: storage.StateDone}
}

// A settlement that begins during a takeover waits for the takeover, and then finds the new fence.
// storetest checks the other order, in which the takeover skips the lane.
func TestSettleWaitsForTakeover(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		if table.Kind == testdb.SQLite {
			return // one transaction writes at a time, so the settlement can't begin during the takeover
		}
		exec(t, table.DB, "INSERT INTO outbox (topic, message_key) VALUES ('a', 'k')")
		store, rows, fences := lease(t, table, "old")
		exec(t, table.DB, "UPDATE outbox_lanes SET until = '2001-01-01 00:00:00'")
		takeover, err := table.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = takeover.Rollback() }()
		takeOver(t, table, takeover)
		settled := make(chan storage.Settled)
		go func() {
			counts, err := store.Settle(t.Context(), "old", true, []storage.Settlement{done(rows[0], fences)})
			if err != nil {
				t.Error(err)
			}
			settled <- counts
		}()
		waitBlocked(t, table)
		if err := takeover.Commit(); err != nil {
			t.Fatal(err)
		}
		if got, want := <-settled, (storage.Settled{Fenced: 1}); got != want {
			t.Errorf("settled after the takeover: %+v, want %+v", got, want)
		}
	})
}

// waitBlocked returns once a session of the database waits for a lock.
func waitBlocked(t *testing.T, table table) {
	t.Helper()
	waiting := "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
	eventually(t, "a session waits for a lock", func() (blocked bool) {
		if isMySQL(table.Kind) {
			return mysqlTable{table}.longStatements(t) > 0
		}
		if err := table.DB.QueryRow(waiting).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
		return blocked
	})
}

// 30 consumers claim 100 rows, and each row is claimed once. On PostgreSQL another session meanwhile
// holds the lock with which pg_dump locks tables.
func TestConcurrentClaimsTakeEachRowOnce(t *testing.T) {
	const consumers, count = 30, 100
	eachTable(t, func(t *testing.T, table table) {
		if err := table.open(t).SetClaimMode(t.Context(), storage.ByRows); err != nil {
			t.Fatal(err)
		}
		exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('a')"+strings.Repeat(", ('a')", count-1))
		if table.Kind == testdb.Postgres {
			dump, err := table.DB.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = dump.Rollback() }()
			if _, err := dump.Exec("LOCK TABLE outbox, outbox_held, outbox_done IN ACCESS SHARE MODE"); err != nil {
				t.Fatal(err)
			}
		}
		claimed := compete(t, table, consumers)
		slices.Sort(claimed)
		if distinct := len(slices.Compact(slices.Clone(claimed))); len(claimed) != count || distinct != count {
			t.Errorf("%d rows were claimed, %d of them distinct; want %d distinct rows", len(claimed), distinct, count)
		}
	})
}

// compete runs consumers that claim two rows at a time until a claim is empty.
func compete(t *testing.T, table table, consumers int) (claimed []int64) {
	t.Helper()
	store := table.open(t)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range consumers {
		all.Go(func() {
			for {
				rows, err := store.Claim(t.Context(), storage.ClaimRequest{Relay: "r", Token: fmt.Sprint(i), TTL: time.Minute, Limit: 2})
				if errors.Is(err, storage.ErrBusy) {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				if len(rows) == 0 {
					return
				}
				mu.Lock()
				for _, row := range rows {
					claimed = append(claimed, row.ID)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return claimed
}

// A settlement succeeds while the claims of its rows are being extended.
func TestSettleSucceedsDuringExtend(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		store := table.open(t)
		if err := store.SetClaimMode(t.Context(), storage.ByRows); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('a'), ('b'), ('c')")
			rows, err := store.Claim(t.Context(), storage.ClaimRequest{Relay: "r", Token: "t", TTL: time.Minute, Limit: 3})
			if err != nil || len(rows) != 3 {
				t.Fatalf("claimed %d rows, %v", len(rows), err)
			}
			var settlements []storage.Settlement
			var ids []int64
			for _, row := range rows {
				ids = append(ids, row.ID)
				settlements = append(settlements, storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Token: "t", State: storage.StateDone})
			}
			var extending sync.WaitGroup
			extending.Go(func() {
				for range 5 {
					if _, err := store.Extend(t.Context(), "t", ids, time.Minute); err != nil {
						t.Error(err)
					}
				}
			})
			if settled, err := store.Settle(t.Context(), "r", true, settlements); err != nil || settled.Changed != 3 {
				t.Errorf("settled %+v, %v; want 3 changed", settled, err)
			}
			extending.Wait()
		}
	})
}

func TestHandleTxCommitsTheHandlersWritesWithTheSettlement(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		exec(t, table.DB, "CREATE TABLE effects (name text)")
		exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('a')")
		opened, rows, fences := lease(t, table, "r")
		store := opened.(storage.TxStore)
		handle := func(settlement storage.Settlement, result error) error {
			return store.HandleTx(t.Context(), "r", true, settlement, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('done')"); err != nil {
					t.Error(err)
				}
				return result
			})
		}
		want := func(when string, effects, pending int) {
			t.Helper()
			var gotEffects, gotPending int
			if err := table.DB.QueryRow("SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM outbox WHERE lane < 64)").Scan(&gotEffects, &gotPending); err != nil {
				t.Fatal(err)
			}
			if gotEffects != effects || gotPending != pending {
				t.Errorf("%s: %d effects and %d pending rows, want %d and %d", when, gotEffects, gotPending, effects, pending)
			}
		}
		failure := errors.New("the handler failed")
		if err := handle(done(rows[0], fences), failure); !errors.Is(err, failure) {
			t.Errorf("HandleTx with a failing handler returned %v", err)
		}
		want("after a failure", 0, 1)
		stale := done(rows[0], fences)
		stale.Fence--
		if err := handle(stale, nil); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("HandleTx with an old fence returned %v, want ErrFenced", err)
		}
		want("with an old fence", 0, 1)
		part := done(rows[0], fences)
		part.For, part.Left = "a", "b"
		other := part
		other.Sinks = "c"
		if err := handle(other, nil); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("HandleTx with other sinks than the row's returned %v, want ErrFenced", err)
		}
		if err := handle(part, failure); !errors.Is(err, failure) {
			t.Errorf("HandleTx for one sink with a failing handler returned %v", err)
		}
		want("with other sinks, or after a failure for one sink", 0, 1)
		if err := handle(part, nil); err != nil {
			t.Error(err)
		}
		want("handled for a sink", 1, 1)
		if err := handle(part, nil); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("HandleTx for the same sink again returned %v, want ErrFenced", err)
		}
		want("handled for a sink again", 1, 1)
		exec(t, table.DB, "DELETE FROM effects")
		other = done(rows[0], fences)
		other.MessageID = aMessage
		if err := handle(other, nil); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("HandleTx for another message returned %v, want ErrFenced", err)
		}
		want("for another message", 0, 1)
		if err := handle(done(rows[0], fences), nil); err != nil {
			t.Error(err)
		}
		want("handled", 1, 0)
		if err := handle(done(rows[0], fences), nil); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("HandleTx for a settled row returned %v, want ErrFenced", err)
		}
		want("handled again", 1, 0)
		if handlerPanics(store, done(rows[0], fences)) {
			t.Error("the handler was called for a row that was already settled")
		}
	})
}

// While a handler's transaction is open, Extend extends the other claims, and also returns the handled
// row as still claimed.
func TestExtendIsNotBlockedByAHandler(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		if table.Kind == testdb.SQLite {
			return // while a handler's transaction is open, no other transaction can write
		}
		store := table.open(t)
		if err := store.SetClaimMode(t.Context(), storage.ByRows); err != nil {
			t.Fatal(err)
		}
		exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('a'), ('b')")
		rows, err := store.Claim(t.Context(), storage.ClaimRequest{Relay: "r", Token: "t", TTL: time.Minute, Limit: 2})
		if err != nil || len(rows) != 2 {
			t.Fatalf("claimed %d rows, %v", len(rows), err)
		}
		settlement := storage.Settlement{ID: rows[0].ID, Lane: rows[0].Lane, MessageID: rows[0].Message.ID, Token: "t", State: storage.StateDone}
		err = store.HandleTx(t.Context(), "r", true, settlement, func(ctx context.Context, _ *sql.Tx) error {
			still, err := store.Extend(ctx, "t", []int64{rows[0].ID, rows[1].ID}, time.Hour)
			if err != nil || len(still) != 2 {
				t.Errorf("extended %v, %v; want both rows", still, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func handlerPanics(store storage.TxStore, settlement storage.Settlement) (reached bool) {
	defer func() { reached = recover() != nil }()
	_ = store.HandleTx(context.Background(), "r", true, settlement, func(context.Context, *sql.Tx) error { panic("reached") })
	return false
}

// takeOver leases all lanes in a transaction that stays open, with the statements of the backend's
// Acquire.
func takeOver(t testing.TB, table table, tx *sql.Tx) {
	t.Helper()
	everyLane := func(query string) (lanes [][]driver.Value) {
		for lane := range storage.Lanes {
			grant := []driver.Value{int64(lane), int64(2), "", int64(0), "", int64(0)}
			if strings.HasPrefix(query, "SELECT l.lane FROM") { // PostgreSQL locks the lanes first
				grant = grant[:1]
			}
			lanes = append(lanes, grant)
		}
		return lanes
	}
	for _, query := range asked(t, table, everyLane, func(b backend.Backend) {
		if _, _, err := b.Acquire(t.Context(), "new", storage.Lanes, time.Minute, 1); err != nil {
			t.Fatal(err)
		}
	}) {
		rows, err := tx.Query(query.SQL, query.Args...)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
