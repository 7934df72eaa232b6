package adopt_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// Writers continue while the table is adopted, and while Run is killed and run again. Each committed row is forwarded once,
// in the order of its key, even if a transaction that began before the lock commits late.
func TestWritersContinue(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		t.Run("trigger", func(t *testing.T) { writersContinue(t, db, adopt.Trigger) })
		if db.Kind == testdb.Postgres {
			execute(t, db, "DROP TABLE events; DELETE FROM outbox; DELETE FROM outbox_settings WHERE name LIKE 'adopt.%'")
			t.Run("view", func(t *testing.T) { writersContinue(t, db, adopt.View) })
		}
	}, "postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
}

func writersContinue(t *testing.T, db testdb.Database, way adopt.Way) {
	execute(t, db, events[db.Kind])
	writers := startWriters(t, db, 2)
	for range 4 {
		writers.backlog(t, db, 400)
	}
	late := holdTransaction(t, db)
	run := func(ctx context.Context, progress adopt.Progress) error {
		a := open(t, db, "events")
		a.Way = way
		_, err := a.Run(ctx, progress)
		return err
	}
	for kills := 1; kills <= 3; kills++ {
		ctx, kill := context.WithCancel(t.Context())
		calls := 0
		err := run(ctx, func(int64, int) {
			if calls++; calls == kills {
				kill()
			}
		})
		kill()
		if err == nil && late != nil {
			t.Error("Run has ended, although a transaction holds a lock on the table")
		}
	}
	tries := 0
	check(t, run(t.Context(), func(_ int64, try int) {
		if tries = max(tries, try); try == 1 {
			check(t, late.Commit())
		}
	}))
	if late != nil && tries == 0 {
		t.Error("Run didn't wait for the open transaction")
	}
	writers.stop(t)
	wantLines(t, db, "SELECT count(*) FROM events WHERE sent_at IS NULL", "0")
	writers.compare(t, lines(t, db, "SELECT concat(message_key, ' ', topic) FROM outbox ORDER BY id"))
	undo(t, open(t, db, "events"))
}

// If rows aren't marked, the whole backlog is forwarded under the lock under which the trigger is created, and only once.
func TestRowsThatAreNotMarked(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('a', '1', '{}'), ('b', '1', '{}')")
		for range 2 {
			a := open(t, db, "events")
			a.Mapping.Waiting, a.Mapping.Published = "true", nil
			_, err := a.Run(t.Context(), nil)
			check(t, err)
			execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('new', '1', '{}')")
		}
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "new", "new")
		wantLines(t, db, "SELECT count(*) FROM events WHERE sent_at IS NULL", "4")
	}, "postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
}

// The tables to which foreign keys refer are locked together with the adopted table. If adopt didn't name them,
// MySQL would lock them later, and adopt and the writers to both tables could wait for one another forever.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE orders (id bigint AUTO_INCREMENT PRIMARY KEY)")
		execute(t, db, strings.TrimSuffix(events[db.Kind], ")")+", order_id bigint, earlier bigint, FOREIGN KEY (order_id) REFERENCES orders (id), FOREIGN KEY (earlier) REFERENCES events (id))")
		a := open(t, db, "events")
		for _, script := range []func() (string, error){a.Script, a.UndoScript} {
			text, err := script()
			check(t, err)
			if want := "`.`orders` READ"; strings.Count(text, want) != 1 || strings.Contains(text, "`events` READ") {
				t.Errorf("%s isn't once in\n%s", want, text)
			}
		}
		writers, stopped := sync.WaitGroup{}, make(chan struct{})
		written := make([]int, 4)
		for i := range written {
			pool := db.OpenAnother(t)
			writers.Go(func() {
				for {
					select {
					case <-stopped:
						return
					default:
						if err := writeBoth(t.Context(), pool); err == nil {
							written[i]++
						} else if !strings.Contains(err.Error(), "1213") { // a deadlock
							t.Error(err)
							return
						}
					}
				}
			})
		}
		var sessions sync.WaitGroup
		for range 4 {
			sessions.Go(func() {
				for range 3 {
					if _, err := open(t, db, "events").Undo(t.Context(), nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		sessions.Wait()
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		close(stopped)
		writers.Wait()
		total := 0
		for _, rows := range written {
			total += rows
		}
		wantLines(t, db, "SELECT count(*) FROM outbox", fmt.Sprint(total))
	}, "mysql/gosql", "mariadb1011/gosql")
}

// writeBoth inserts an order, and an event that refers to it.
func writeBoth(ctx context.Context, pool *sql.DB) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ()"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO events (kind, aggregate_id, body, order_id) VALUES ('a', '1', '{}', last_insert_id())"); err != nil {
		return err
	}
	return tx.Commit()
}

// MySQL and MariaDB find the rows of a batch by their primary key. The other databases need a key only to mark rows.
func TestNoPrimaryKey(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE events (number int, kind varchar(9))")
		execute(t, db, "INSERT INTO events VALUES (2, 'b'), (1, 'a')")
		a := open(t, db, "events")
		a.Mapping = adopt.Mapping{Topic: "kind", Payload: "kind", Waiting: "true", Order: "number"}
		want := []string{"a", "b", "c"}
		_, err := a.Run(t.Context(), nil)
		if db.Kind == testdb.MySQL || db.Kind == testdb.MariaDB {
			if err == nil || !strings.Contains(err.Error(), "has no primary key") {
				t.Fatalf("Run returns %v", err)
			}
			a.Mapping.Waiting, want = "false", want[2:]
			_, err = a.Run(t.Context(), nil)
		}
		check(t, err)
		execute(t, db, "INSERT INTO events VALUES (3, 'c')")
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", want...)
	}, everyServer...)
}

// holdTransaction inserts a row and leaves the transaction open. It returns nil on SQLite, where no other writer could write.
func holdTransaction(t *testing.T, db testdb.Database) *sql.Tx {
	t.Helper()
	if db.Kind == testdb.SQLite {
		return nil
	}
	tx, err := db.OpenAnother(t).BeginTx(t.Context(), nil)
	check(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO events (kind, aggregate_id, body) VALUES ('1', 'late', '{}')")
	check(t, err)
	return tx
}

// writers write rows of their own keys, numbered from 1 for each key.
type writers struct {
	mu      sync.Mutex
	last    map[string]int // the number of each key's last committed row
	stopped chan struct{}
	group   sync.WaitGroup
}

func startWriters(t *testing.T, db testdb.Database, count int) *writers {
	t.Helper()
	w := &writers{last: map[string]int{}, stopped: make(chan struct{})}
	for i := range count {
		pool := db.OpenAnother(t)
		w.group.Go(func() {
			for range 1500 { // a limit, so that adopt can catch up with the writers on the slowest machine
				if w.isStopped() {
					return
				}
				key := fmt.Sprintf("writer %d key %d", i, rand.IntN(3))
				rows, rollBack := 1+rand.IntN(3), rand.IntN(4) == 0
				if err := w.write(t.Context(), pool, key, rows, rollBack); err != nil {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	return w
}

func (w *writers) isStopped() bool {
	select {
	case <-w.stopped:
		return true
	default:
		return false
	}
}

func (w *writers) write(ctx context.Context, pool *sql.DB, key string, rows int, rollBack bool) error {
	w.mu.Lock()
	n := w.last[key]
	w.mu.Unlock()
	var values []string
	for i := range rows {
		values = append(values, fmt.Sprintf("('%d', '%s', '{}')", n+i+1, key))
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO events (kind, aggregate_id, body) VALUES "+strings.Join(values, ", ")); err != nil {
		return err
	}
	if rollBack {
		return nil
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[key] = n + rows
	return nil
}

// backlog writes rows of one more key in one transaction.
func (w *writers) backlog(t *testing.T, db testdb.Database, rows int) {
	t.Helper()
	check(t, w.write(t.Context(), db.DB, "backlog", rows, false))
}

func (w *writers) stop(t *testing.T) {
	t.Helper()
	close(w.stopped)
	w.group.Wait()
}

// compare compares the messages, each "key number", with the committed rows.
func (w *writers) compare(t *testing.T, messages []string) {
	t.Helper()
	got := map[string]int{}
	for _, message := range messages {
		at := strings.LastIndex(message, " ")
		key, number := message[:at], message[at+1:]
		got[key]++
		if number != fmt.Sprint(got[key]) {
			t.Fatalf("message %d of %s has the number %s", got[key], key, number)
		}
	}
	for key, last := range w.last {
		if got[key] != last {
			t.Errorf("%d messages of %s were forwarded, want %d", got[key], key, last)
		}
	}
}
