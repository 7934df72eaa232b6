package sqlstore_test

import (
	"database/sql"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
)

// After a large backlog was delivered, a vacuum finds few or no rows in a table and indexes that still have
// many pages. From the statistics of these rows the planner infers that the table is tiny. The statements
// must use their indexes nevertheless, also when the next backlog has been written.
func TestPlansOfAnEmptiedTable(t *testing.T) {
	t.Parallel()
	for _, target := range throughPgx() {
		for _, rows := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by rows %t", target.Name, rows), func(t *testing.T) {
				t.Parallel()
				checkEmptied(t, open(t, target), rows)
			})
		}
	}
}

func checkEmptied(t *testing.T, table table, rows bool) {
	plans, kept := plansOf(t, table, rows)
	fill(t, table.DB, 100_000)
	for _, left := range []int{5000, 200, 30, 15, 8, 5, 3, 2, 1, 0} {
		exec(t, table.DB, "DELETE FROM outbox WHERE id NOT IN (SELECT id FROM outbox ORDER BY id DESC LIMIT "+strconv.Itoa(left)+")")
		exec(t, table.DB, "VACUUM ANALYZE outbox")
		plans.wantIndexes(t, strconv.Itoa(left)+" rows left")
		kept.wantIndexes(t, strconv.Itoa(left)+" rows left")
	}
	fill(t, table.DB, 50_000)
	plans.wantIndexes(t, "no row left, then 50,000 new rows")
	kept.wantIndexes(t, "no row left, then 50,000 new rows")
}

// Statements on outbox_held, which usually is empty, use their indexes after a vacuum of the emptied table.
func TestPlansOfEmptiedHeldRows(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		plans := preparedOn(t, table, "outbox_held", heldStatements(t, table))
		exec(t, table.DB, "VACUUM ANALYZE outbox_held")
		plans.runAll(t)
		fillHeld(t, table.DB, 50_000)
		plans.wantIndexes(t, "statistics of the empty table")
		fillHeld(t, table.DB, 100_000)
		for _, left := range []int{5000, 200, 30, 15, 8, 5, 3, 2, 1, 0} {
			exec(t, table.DB, "DELETE FROM outbox_held WHERE id NOT IN (SELECT id FROM outbox_held ORDER BY id DESC LIMIT "+strconv.Itoa(left)+")")
			exec(t, table.DB, "VACUUM ANALYZE outbox_held")
			plans.wantIndexes(t, strconv.Itoa(left)+" rows left")
		}
		fillHeld(t, table.DB, 50_000)
		plans.wantIndexes(t, "no row left, then 50,000 new rows")
	})
}

// Statements on outbox_done use their indexes when the table has no rows, as on its first day, and when it has many.
func TestPlansOfDoneRows(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		plans := preparedOn(t, table, "outbox_done", doneStatements(t, table))
		plans.runAll(t)
		plans.wantIndexes(t, "a new table")
		exec(t, table.DB, "VACUUM ANALYZE outbox_done")
		plans.runAll(t)
		fillDone(t, table.DB, 50_000)
		plans.wantIndexes(t, "statistics of the empty table")
		exec(t, table.DB, "VACUUM ANALYZE outbox_done")
		plans.wantIndexes(t, "with statistics")
	})
}

func doneStatements(t *testing.T, table table) map[string]backend.Query {
	return map[string]backend.Query{
		"purge":    purgeStatement(t, table, 1000, time.Time{}),
		"purge on": purgeStatement(t, table, 1000, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
}

// purgeStatement returns the statement that deletes rows that were done more than a day ago.
func purgeStatement(t *testing.T, table table, limit int, since time.Time) backend.Query {
	queries := asked(t, table, nil, func(b backend.Backend) { _, _, _ = b.Purge(t.Context(), 24*time.Hour, limit, since) })
	return queries[1] // the first statement limits the wait for locks
}

func fillDone(t *testing.T, db *sql.DB, count int) {
	t.Helper()
	exec(t, db, "INSERT INTO outbox_done (id, lane, message_id, topic, payload_text, priority, attempts, crashes, created_at, finished_at)"+
		" SELECT i, i % 64, gen_random_uuid(), 't', 'some payload', 0, 1, 0, now(), now() - interval '2 day' + i * interval '2 s' FROM generate_series(1, $1::int) AS i", count)
}
