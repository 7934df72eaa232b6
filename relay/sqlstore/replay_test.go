package sqlstore_test

import (
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/mysql"
	"github.com/rowrelay/rowrelay/relay/sqlstore/oracle"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlserver"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Another replay may write copies of the same messages concurrently. A backend that finds the written copies
// by their message ids also finds the other replay's copies, but counts only its own.
func TestReplayCountsItsOwnCopies(t *testing.T) {
	t.Parallel()
	table, err := dialect.ParseTable("outbox")
	if err != nil {
		t.Fatal(err)
	}
	recorder := &backendtest.Recorder{
		Affected: func(string) int64 { return 1 },
		Answer: func(query string) [][]driver.Value {
			if strings.HasPrefix(query, "SELECT t.lane, t.id") {
				return [][]driver.Value{{int64(1), int64(8)}, {int64(1), int64(9)}}
			}
			return [][]driver.Value{{int64(7)}} // the last id
		},
	}
	db := recorder.DB()
	t.Cleanup(func() { _ = db.Close() })
	for name, b := range map[string]backend.Backend{
		"mysql": mysql.New(db, dialect.MySQL(), table), "sqlserver": sqlserver.New(db, dialect.SQLServer(), table), "oracle": oracle.New(db, dialect.Oracle(), table),
	} {
		counted := -1
		message := "01890000-0000-7000-8000-000000000001"
		_, err := b.ChangeReplay(t.Context(), backend.ReplayChange{
			Name: "r", Was: "{}", Is: func(written int) string { counted = written; return "{}" },
			Copies: []storage.Settlement{{ID: 5, Lane: 1, MessageID: message, Deferred: true, DeadLetter: &storage.Copy{MessageID: message, Topic: "t"}}},
		})
		if err != nil || counted != 1 {
			t.Errorf("%s: counted %d copies, %v; want the 1 that was written", name, counted, err)
		}
	}
}
