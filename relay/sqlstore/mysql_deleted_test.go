package sqlstore_test

import (
	"context"
	"database/sql"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// While an old snapshot is open, deleted rows stay in the index. Reads and scans whose positions begin above
// the deleted rows don't read these. MariaDB 10.11 counts the pages that a statement reads. MariaDB 10.5
// doesn't; other tests check its plans.
func TestMariaDBReadsFewPagesDespiteDeletedRows(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		if !strings.HasPrefix(m.Name, "mariadb1011") {
			return
		}
		exec(t, m.DB, "INSERT INTO outbox (topic, message_key, payload_text) SELECT 't', concat('k', a.slot), repeat('x', 200)"+
			" FROM outbox_key_locks AS a, (SELECT slot FROM outbox_key_locks LIMIT 10) AS b")
		snapshot, err := m.DB.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = snapshot.Rollback() })
		var count, last int64
		if err := snapshot.QueryRow("SELECT COUNT(*), MAX(id) FROM outbox").Scan(&count, &last); err != nil {
			t.Fatal(err)
		}
		exec(t, m.DB, "DELETE FROM outbox")
		exec(t, m.DB, "INSERT INTO outbox (topic, message_key) VALUES ('t', 'k1')") // a lane usually has some row
		positions := everyLaneAfter(last)
		positions[3].After-- // the positions need not be equal
		for what, query := range map[string]backend.Query{
			"read": askedLast(t, m.table, func(b backend.Backend) {
				_, _ = b.Read(t.Context(), backend.Read{Positions: positions, Limit: 2000}, nil)
			}),
			"candidates": m.table.open(t).BackendOn(nil).Candidates(positions, nil, 2000),
		} {
			if pages := pagesOf(t, m.DB, query); pages > 50 {
				t.Errorf("%s: read %d pages, although all %d rows before the positions are deleted", what, pages, count)
			}
		}
	})
}

func everyLaneAfter(id int64) (positions []storage.Position) {
	for lane := range 64 {
		positions = append(positions, storage.Position{Lane: lane, After: id, Until: 1<<63 - 1})
	}
	return positions
}

var pagesAccessed = regexp.MustCompile(`"pages_accessed": (\d+)`)

// pagesOf runs a statement and returns the number of pages that it read.
func pagesOf(t *testing.T, db *sql.DB, query backend.Query) (pages int) {
	t.Helper()
	var plan string
	if err := db.QueryRow("ANALYZE FORMAT=JSON "+query.SQL, query.Args...).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	found := pagesAccessed.FindAllStringSubmatch(plan, -1)
	if found == nil {
		t.Fatalf("the server counted no pages: %s", plan)
	}
	for _, f := range found {
		n, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatal(err)
		}
		pages += n
	}
	return pages
}
