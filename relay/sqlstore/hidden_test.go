package sqlstore_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// If row-level security may hide rows of a table from the relay, Open fails and the check names the table.
func TestRowSecurityIsRefused(t *testing.T) {
	t.Parallel()
	for _, target := range allTargets() {
		if target.Kind != testdb.Postgres {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			var user string
			must(t, table.DB.QueryRowContext(t.Context(), "SELECT 'r_' || right(current_database(), 20)").Scan(&user))
			exec(t, table.DB, "CREATE ROLE "+user+" NOSUPERUSER NOBYPASSRLS")
			exec(t, table.DB, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+user)
			exec(t, table.DB, "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO "+user)
			t.Cleanup(func() {
				_, _ = table.DB.Exec("DROP OWNED BY " + user)
				_, _ = table.DB.Exec("DROP ROLE " + user)
			})
			pool := table.OpenAnother(t)
			pool.SetMaxOpenConns(1) // the role is set for one session
			exec(t, pool, "SET ROLE "+user)
			for _, name := range []string{"outbox", "outbox_held", "outbox_lanes", "outbox_settings"} {
				exec(t, table.DB, "ALTER TABLE "+name+" ENABLE ROW LEVEL SECURITY")
				found := finding(sqlstore.Check(t.Context(), pool, table.dialect, sqlstore.Options{}, storage.ByLanes), "row security")
				if found.OK || !strings.Contains(found.Detail, name+" ") {
					t.Errorf("check of %s: %+v", name, found)
				}
				if _, err := sqlstore.Open(t.Context(), pool, table.dialect, sqlstore.Options{}); err == nil || !strings.Contains(err.Error(), "row-level security") {
					t.Errorf("open with row security on %s: %v, want an error about it", name, err)
				}
				exec(t, table.DB, "ALTER TABLE "+name+" DISABLE ROW LEVEL SECURITY")
			}
		})
	}
}

// If the SQLite file was replaced or removed, each call fails. Otherwise the relay would appear healthy and deliver nothing.
func TestCallsFailOnAReplacedSQLiteFile(t *testing.T) {
	t.Parallel()
	for _, target := range allTargets() {
		if target.Kind != testdb.SQLite {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			store := table.open(t)
			beat := func() error {
				_, err := store.Heartbeat(t.Context(), storage.Identity{Name: "r", Claim: storage.ByLanes}, time.Minute)
				return err
			}
			must(t, beat())
			path := strings.TrimPrefix(table.URL, "sqlite:")
			content, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path+".new", content, 0o600))
			must(t, os.Rename(path+".new", path))
			if err := beat(); err == nil || !strings.Contains(err.Error(), "was replaced or removed") {
				t.Errorf("heartbeat: %v, want an error about the replaced file", err)
			}
			if _, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 1}}, Limit: 10, MaxBytes: 1 << 20}); err == nil || !strings.Contains(err.Error(), "was replaced or removed") {
				t.Errorf("read: %v, want an error about the replaced file", err)
			}
			must(t, os.Remove(path))
			if err := beat(); err == nil {
				t.Error("the file was removed, but a heartbeat returned no error")
			}
		})
	}
}
