package sqlstore_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

// While a transaction is open for long (a backup, a report), the index entries of purged rows stay. A purge
// from the start of the index would read all of them, and so more with each call.
func TestPurgeReadsFewPagesDuringAnOpenSnapshot(t *testing.T) {
	const rows, step = 20_000, 1000
	onPostgres(t, func(t *testing.T, table table) {
		finished(t, table.DB, rows, 26*time.Hour)
		holdSnapshot(t, table.OpenAnother(t))
		store := table.open(t)
		for purged := rows; purged > 0; purged -= step {
			if n, err := store.Purge(t.Context(), 24*time.Hour, step); n != step || err != nil {
				t.Fatalf("purged %d rows, want %d; %v", n, step, err)
			}
		}
		whole := purgeReads(t, table, step, time.Time{})
		on := purgeReads(t, table, step, time.Now().Add(-25*time.Hour))
		if whole < 200 || on > whole/10 {
			t.Errorf("a purge from the start of the index reads %d pages, and a purge that continues the previous one reads %d", whole, on)
		}
	})
}

// The store continues where its last purge ended. It misses rows with earlier times that appeared later. The
// next purge that begins with the oldest row, here another store's, deletes them.
func TestPurgeContinuesWhereTheLastOneEnded(t *testing.T) {
	onPostgres(t, func(t *testing.T, table table) {
		store, another := table.open(t), table.open(t)
		purges := func(want int, by *sqlstore.Store, what string) {
			t.Helper()
			if n, err := by.Purge(t.Context(), 24*time.Hour, 100); n != want || err != nil {
				t.Errorf("purged %d rows %s, want %d; %v", n, what, want, err)
			}
		}
		finished(t, table.DB, 150, 26*time.Hour)
		purges(100, store, "with the first call")
		purges(50, store, "with the second call")
		finished(t, table.DB, 7, 25*time.Hour)
		purges(0, store, "with times before the end of the last purge")
		purges(7, another, "with a new store")
	})
}

// onPostgres runs a test on a new table of each PostgreSQL server, with each driver.
func onPostgres(t *testing.T, run func(*testing.T, table)) {
	t.Helper()
	runOn(t, slices.DeleteFunc(testdb.Each(), func(target testdb.Target) bool { return target.Kind != testdb.Postgres }), run)
}

// onPgx runs a test on a new table of each PostgreSQL server, with pgx only, because the test doesn't depend on the driver.
func onPgx(t *testing.T, run func(*testing.T, table)) {
	t.Helper()
	runOn(t, throughPgx(), run)
}

func runOn(t *testing.T, targets []testdb.Target, run func(*testing.T, table)) {
	t.Helper()
	t.Parallel()
	for _, target := range targets {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t, target))
		})
	}
}

func throughPgx() (targets []testdb.Target) {
	for _, target := range testdb.Targets() {
		if target.Driver == "pgx" {
			targets = append(targets, target)
		}
	}
	return targets
}

// finished writes done rows. The first one finished `ago` before now, and each following one a millisecond after the previous one.
func finished(t *testing.T, db *sql.DB, rows int, ago time.Duration) {
	t.Helper()
	exec(t, db, `INSERT INTO outbox_done (id, lane, message_id, topic, payload_text, priority, attempts, crashes, created_at, finished_at)
		SELECT nextval(pg_get_serial_sequence('outbox', 'id')), 1, gen_random_uuid(), 't', repeat('x', 200), 0, 1, 0,
			now(), now() - $1::bigint * interval '1 second' + i * interval '1 millisecond' FROM generate_series(1, $2::int) AS i`, int64(ago.Seconds()), rows)
	exec(t, db, "ANALYZE outbox_done")
}

// holdSnapshot opens a transaction with a snapshot, until the test ends.
func holdSnapshot(t *testing.T, db *sql.DB) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT count(*) FROM outbox_done"); err != nil {
		t.Fatal(err)
	}
}

// purgeReads returns the number of pages that a purge reads.
func purgeReads(t *testing.T, table table, limit int, since time.Time) (pages int) {
	t.Helper()
	query := purgeStatement(t, table, limit, since)
	rows, err := table.DB.QueryContext(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+query.SQL, query.Args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plan, line)
	}
	first := buffers.FindStringSubmatch(plan.String())
	if rows.Err() != nil || first == nil {
		t.Fatalf("explain the purge: %v\n%s", rows.Err(), plan.String())
	}
	for _, number := range pagesRead.FindAllStringSubmatch(first[1], -1) {
		n, _ := strconv.Atoi(number[1])
		pages += n
	}
	return pages
}

var (
	buffers   = regexp.MustCompile(`Buffers: shared (.*)`)
	pagesRead = regexp.MustCompile(`(?:hit|read)=(\d+)`)
)

// A purge skips rows that another transaction is deleting, for example a purge that continues on the server after its client has
// disconnected. A later purge deletes them if that transaction is rolled back.
func TestPurgeSkipsLockedRows(t *testing.T) {
	waiting := func(target testdb.Target) bool { return target.Kind == testdb.SQLite || waits(target.Name) }
	runOn(t, slices.DeleteFunc(allTargets(), waiting), func(t *testing.T, table table) {
		exec(t, table.DB, `INSERT INTO outbox_done (id, lane, message_id, topic, payload_text, priority, attempts, crashes, created_at, finished_at)
			VALUES (1, 1, '0197a3b4-0000-7abc-8def-0123456789ab', 't', '{}', 0, 1, 0, '2020-01-01 00:00:00', '2020-01-01 00:00:00')`)
		tx, err := table.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "DELETE FROM outbox_done"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{0, 1} {
			if n, err := table.open(t).Purge(t.Context(), 0, 100); n != want || err != nil {
				t.Errorf("purged %d rows, %v, want %d", n, err, want)
			}
			_ = tx.Rollback()
		}
	})
}
