package readme

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

func TestSQLRuns(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := openTable(t, target)
			db.DB.SetMaxOpenConns(1) // one connection, because a transaction spans several statements
			_, err := db.DB.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER PRIMARY KEY, paid BOOLEAN NOT NULL DEFAULT FALSE)")
			check(t, err)
			for _, b := range blocks(t, "sql") {
				db.script(t, b)
			}
			if written := outboxtest.Messages(t, db.DB, db.dialect, "outbox"); len(written) == 0 {
				t.Error("the pages' SQL wrote no message")
			}
		})
	}
}

// script runs statements one after another, because some drivers accept only one.
func (db table) script(t *testing.T, b block) {
	t.Helper()
	for statement := range strings.SplitSeq(b.text, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.DB.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%s: %s: %v", b.place, statement, err)
		}
	}
}
