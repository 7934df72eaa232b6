package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
)

// database is a database with an inbox, and a table for effects.
type database struct {
	testdb.Database
	dialect dialect.Dialect
}

func onEach(t *testing.T, test func(*testing.T, database)) { on(t, testdb.Each(), test) }

func on(t *testing.T, targets []testdb.Target, test func(*testing.T, database)) {
	t.Parallel()
	for _, target := range targets {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			d, err := dialect.ByName(target.Kind)
			check(t, err)
			test(t, migrated(t, target.Open(t), d))
		})
	}
}

func migrated(t *testing.T, db testdb.Database, d dialect.Dialect) database {
	t.Helper()
	tables, err := migrations.NewInbox(db.DB, d, "")
	check(t, err)
	_, err = tables.Up(t.Context())
	check(t, err)
	_, err = db.DB.ExecContext(t.Context(), "CREATE TABLE effects (message VARCHAR(40))")
	check(t, err)
	return database{db, d}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newInbox(t testing.TB, d dialect.Dialect, consumer string, options inbox.Options) *inbox.Inbox {
	t.Helper()
	in, err := inbox.New(d, consumer, options)
	check(t, err)
	return in
}

func (db database) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := db.DB.BeginTx(t.Context(), nil)
	check(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// effect returns a function that writes the effect of a message. The id must not contain quotes.
func effect(ctx context.Context, id string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (message) VALUES ('"+id+"')")
		return err
	}
}

// effects counts the effects by message.
func (db database) effects(t testing.TB) map[string]int {
	t.Helper()
	rows, err := db.DB.QueryContext(t.Context(), "SELECT message, count(*) FROM effects GROUP BY message")
	check(t, err)
	defer func() { _ = rows.Close() }()
	counts := map[string]int{}
	for rows.Next() {
		var message string
		var n int
		check(t, rows.Scan(&message, &n))
		counts[message] = n
	}
	check(t, rows.Err())
	return counts
}

func TestOnlyTheFirstDeliveryIsFirst(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		tx := db.begin(t)
		for _, step := range []struct {
			consumer, id string
			first        bool
		}{
			{"billing", "a", true},
			{"billing", "a", false}, // the second delivery is in the same transaction
			{"billing", "A", true},
			{"billing", "ä", true},
			{"billing", "b", true},
			{"stock", "a", true},
			{"Billing", "a", true},
			{"stock", "a", false},
			{"billing", `o'Neil "\x" $1 ? :1 @p1 %`, true},
			{"billing", `o'Neil "\x" $1 ? :1 @p1 %`, false},
			{strings.Repeat("n", 100), strings.Repeat("i", 255), true},
			{strings.Repeat("n", 100), strings.Repeat("i", 254), true},
			{strings.Repeat("n", 100), strings.Repeat("i", 255), false},
		} {
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO effects (message) VALUES ('x')"); err != nil {
				t.Fatal(err) // the transaction changes another row before it calls Once
			}
			if first, err := newInbox(t, db.dialect, step.consumer, inbox.Options{}).Once(t.Context(), tx, step.id); err != nil || first != step.first {
				t.Errorf("%.20s receives %.20s: %t, %v; want %t", step.consumer, step.id, first, err, step.first)
			}
		}
		check(t, tx.Commit())
		if first, err := newInbox(t, db.dialect, "billing", inbox.Options{}).Once(t.Context(), db.begin(t), "b"); err != nil || first {
			t.Errorf("in another transaction: %t, %v; want that it is there", first, err)
		}
	})
}

func TestDeliveryAfterARollbackIsFirst(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		in := newInbox(t, db.dialect, "billing", inbox.Options{})
		for range 2 {
			tx := db.begin(t)
			if first, err := in.Once(t.Context(), tx, "a"); err != nil || !first {
				t.Fatalf("Once = %t, %v; want the first time", first, err)
			}
			check(t, tx.Rollback())
		}
	})
}

// impatient has statements that set a time limit for waiting for a lock. So tests recognise a wait
// by its error, and need not measure time.
var impatient = map[string]string{
	testdb.Postgres:  "SET lock_timeout = '300ms'",
	testdb.MySQL:     "SET SESSION innodb_lock_wait_timeout = 1",
	testdb.MariaDB:   "SET SESSION innodb_lock_wait_timeout = 1",
	testdb.SQLite:    "PRAGMA busy_timeout = 300",
	testdb.SQLServer: "SET LOCK_TIMEOUT 300",
}

// While one transaction handles a message, a second one waits for it. If the wait times out, the
// error asks for a retry. After the wait the second transaction sees the result of the first.
func TestASecondTransactionWaitsForTheFirst(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		if impatient[db.Kind] == "" {
			t.Skip("a wait has no end on " + db.Kind + "; concurrent deliveries are tested elsewhere")
		}
		in := newInbox(t, db.dialect, "billing", inbox.Options{})
		other, err := db.OpenAnother(t).Conn(t.Context())
		check(t, err)
		defer func() { _ = other.Close() }()
		_, err = other.ExecContext(t.Context(), impatient[db.Kind])
		check(t, err)
		for id, commits := range map[string]bool{"committed": true, "rolled-back": false} {
			tx := db.begin(t)
			if first, err := in.Once(t.Context(), tx, id); err != nil || !first {
				t.Fatalf("Once = %t, %v; want the first time", first, err)
			}
			if _, err := onceOn(t, in, db, other, id); !errors.Is(err, inbox.ErrBusy) {
				t.Errorf("while another transaction handles the message: %v, want ErrBusy", err)
			}
			if commits {
				check(t, tx.Commit())
			} else {
				check(t, tx.Rollback())
			}
			if first, err := onceOn(t, in, db, other, id); err != nil || first == commits {
				t.Errorf("%s: %t, %v; want %t", id, first, err, !commits)
			}
		}
	})
}

// onceOn calls Once in a new transaction. On SQLite, even beginning the transaction may wait.
func onceOn(t *testing.T, in *inbox.Inbox, db database, conn *sql.Conn, id string) (bool, error) {
	t.Helper()
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil && db.dialect.Busy(err) {
		return false, inbox.ErrBusy
	}
	check(t, err)
	defer func() { _ = tx.Rollback() }()
	return in.Once(t.Context(), tx, id)
}

// Many consumers receive the same messages concurrently. Some consumers fail after the effect and
// retry.
func TestConcurrentDeliveriesHaveOneEffect(t *testing.T) {
	const consumers, messages = 6, 12
	onEach(t, func(t *testing.T, db database) {
		in := newInbox(t, db.dialect, "billing", inbox.Options{})
		firsts := make([]int, consumers)
		var group sync.WaitGroup
		for c := range consumers {
			pool := db.OpenAnother(t)
			group.Go(func() {
				for m := range messages {
					id := fmt.Sprint("message-", m)
					if deliver(t, in, pool, id, m%3 == c%3) {
						firsts[c]++
					}
				}
			})
		}
		group.Wait()
		total := 0
		for _, n := range firsts {
			total += n
		}
		if total != messages {
			t.Errorf("%d first times of %d messages", total, messages)
		}
		counts := db.effects(t)
		for m := range messages {
			if n := counts[fmt.Sprint("message-", m)]; n != 1 {
				t.Errorf("message %d has %d effects, want 1", m, n)
			}
		}
	})
}

var errHandler = errors.New("the handler failed")

// deliver retries until the message was handled. If fails is true, the handler fails once after
// the effect.
func deliver(t *testing.T, in *inbox.Inbox, pool *sql.DB, id string, fails bool) (first bool) {
	for range 100 {
		first, err := in.Do(t.Context(), pool, id, func(tx *sql.Tx) error {
			if err := effect(t.Context(), id)(tx); err != nil || !fails {
				return err
			}
			fails = false
			return errHandler
		})
		if err == nil {
			return first
		}
		if !errors.Is(err, errHandler) && !errors.Is(err, inbox.ErrBusy) {
			t.Errorf("Do: %v", err)
			return false
		}
	}
	t.Errorf("%s was not received in 100 tries", id)
	return false
}

// At higher isolation levels, if a message is received after a transaction began, the transaction
// either sees the message or gets an error that asks for a retry.
func TestHigherIsolation(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		if db.Kind == testdb.SQLite {
			t.Skip("its transactions are serializable, and one writes at a time")
		}
		in := newInbox(t, db.dialect, "billing", inbox.Options{})
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx, err := db.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				continue // the driver doesn't know this level
			}
			var n int // this query takes the transaction's snapshot
			check(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM effects").Scan(&n))
			id := level.String()
			if first, err := in.Do(t.Context(), db.DB, id, func(*sql.Tx) error { return nil }); err != nil || !first {
				t.Fatalf("Do = %t, %v; want the first time", first, err)
			}
			if first, err := in.Once(t.Context(), tx, id); first || err != nil && !errors.Is(err, inbox.ErrBusy) {
				t.Errorf("%s: %t, %v; want that it is there, or a try more", level, first, err)
			}
			check(t, tx.Rollback())
		}
	})
}
