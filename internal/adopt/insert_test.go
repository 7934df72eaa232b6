package adopt_test

import (
	"fmt"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// Each statement of a writer is forwarded exactly as often as it inserts a row.
func TestEachShapeOfInsert(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		execute(t, db, "CREATE UNIQUE INDEX once ON events (aggregate_id)")
		a := open(t, db, "events")
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		mysql := db.Kind == testdb.MySQL || db.Kind == testdb.MariaDB
		insert := "INSERT INTO events (kind, aggregate_id, body) VALUES "
		execute(t, db, insert+"('a', '1', '{}'), ('b', '2', '{}')")
		if mysql {
			execute(t, db, "INSERT IGNORE INTO events (kind, aggregate_id, body) VALUES ('no', '1', '{}'), ('c', '3', '{}'), ('no', '2', '{}')")
			execute(t, db, insert+"('no', '1', '{}'), ('d', '4', '{}') ON DUPLICATE KEY UPDATE kind = 'changed'")
			execute(t, db, "REPLACE INTO events (kind, aggregate_id, body) VALUES ('e', '2', '{}')")
		} else {
			execute(t, db, insert+"('no', '1', '{}'), ('c', '3', '{}'), ('no', '2', '{}') ON CONFLICT DO NOTHING")
			execute(t, db, insert+"('no', '1', '{}'), ('d', '4', '{}') ON CONFLICT (aggregate_id) DO UPDATE SET kind = 'changed'")
			if db.Kind == testdb.SQLite {
				execute(t, db, "INSERT OR IGNORE INTO events (kind, aggregate_id, body) VALUES ('no', '1', '{}')")
				execute(t, db, "INSERT OR REPLACE INTO events (kind, aggregate_id, body) VALUES ('e', '2', '{}')")
			} else {
				execute(t, db, `COPY events (kind, aggregate_id, body) FROM PROGRAM 'printf ''e\t5\t{}\n'''`)
			}
		}
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) SELECT concat('f', kind), concat('f', aggregate_id), body FROM events WHERE kind = 'a' OR kind = 'e' ORDER BY id")
		tx, err := db.DB.BeginTx(t.Context(), nil)
		check(t, err)
		_, err = tx.ExecContext(t.Context(), insert+"('g', 'g', '{}')")
		check(t, err)
		_, err = tx.ExecContext(t.Context(), "DELETE FROM events WHERE kind = 'g'")
		check(t, err)
		check(t, tx.Commit())
		tx, err = db.DB.BeginTx(t.Context(), nil)
		check(t, err)
		_, err = tx.ExecContext(t.Context(), insert+"('no', 'rolled back', '{}')")
		check(t, err)
		check(t, tx.Rollback())
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c", "d", "e", "fe", "g")
		wantLines(t, db, "SELECT count(*) FROM events WHERE sent_at IS NULL", "0")
	}, everyServer...)
}

// A program gets the id of its own row, and not the id of the message.
func TestLastInsertId(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		_, err := open(t, db, "events").Run(t.Context(), nil)
		check(t, err)
		execute(t, db, "INSERT INTO outbox (topic) VALUES ('a'), ('b'), ('c')")
		for _, kind := range []string{"a", ""} { // the second one is parked
			result, err := db.DB.ExecContext(t.Context(), "INSERT INTO events (kind, aggregate_id, body) VALUES ('"+kind+"', '1', '{}')")
			check(t, err)
			id, err := result.LastInsertId()
			check(t, err)
			rows, err := result.RowsAffected()
			check(t, err)
			if want := lines(t, db, "SELECT max(id) FROM events"); fmt.Sprint(id) != want[0] || rows != 1 {
				t.Errorf("the last id is %d and %d rows were inserted, want %s and 1", id, rows, want[0])
			}
		}
	}, "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
}
