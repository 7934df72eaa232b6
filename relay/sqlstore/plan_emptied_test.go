package sqlstore_test

import (
	"fmt"
	"strconv"
	"testing"
)

// Where a vacuum finds a few rows, or none, in a table and an index that have the
// pages of a large backlog, the planner takes next to nothing for what there is
// to read, and how its few rows lie for how all of them do. The next backlog is
// read by what it made of that.
func TestPlansOfAnEmptiedTable(t *testing.T) {
	t.Parallel()
	for _, target := range postgresTargets() {
		if target.Driver != "pgx" {
			continue
		}
		for _, rows := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by rows %t", target.Name, rows), func(t *testing.T) {
				t.Parallel()
				checkEmptied(t, open(t, target), rows)
			})
		}
	}
}

func checkEmptied(t *testing.T, table table, rows bool) {
	plans := plansOf(t, table, rows)
	fill(t, table.DB, 100_000)
	for _, left := range []int{5000, 200, 30, 15, 8, 5, 3, 2, 1, 0} {
		exec(t, table.DB, "DELETE FROM outbox WHERE id NOT IN (SELECT id FROM outbox ORDER BY id DESC LIMIT "+strconv.Itoa(left)+")")
		exec(t, table.DB, "VACUUM ANALYZE outbox")
		plans.wantIndexes(t, strconv.Itoa(left)+" rows left")
	}
	fill(t, table.DB, 50_000)
	plans.wantIndexes(t, "no row left, 50,000 new ones")
}

// The same for the rows that are held, whose table is empty nearly always.
func TestPlansOfEmptiedHeldRows(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		plans := preparedOn(t, table, "outbox_held", heldStatements(table.dialect))
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
		plans.wantIndexes(t, "no row left, 50,000 new ones")
	})
}
