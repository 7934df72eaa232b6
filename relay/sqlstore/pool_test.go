package sqlstore_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// If the pool closes idle connections and opens them again, as with the default settings, the store warns
// once. It doesn't warn if the pool is from stdlib.OpenDBFromPool: such a pool keeps no idle connection itself, because its
// pgxpool keeps them.
func TestPoolThatClosesIdleConnectionsIsReported(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ keep, want int }{"two": {2, 1}, "enough": {8, 0}, "none, as by OpenDBFromPool": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t, aSQLite(t))
			table.DB.SetMaxIdleConns(tt.keep)
			store, err := sqlstore.Open(t.Context(), table.DB, table.dialect, sqlstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			told := 0
			for range 60 {
				useAtOnce(t, table.DB, 4)
				page, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 1}}, Limit: 10, MaxBytes: 1000})
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(page.Warning, "SetMaxIdleConns") {
					told++
				}
			}
			if told != tt.want {
				t.Errorf("warned %d times, want %d", told, tt.want)
			}
		})
	}
}

func aSQLite(t *testing.T) testdb.Target {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Kind == testdb.SQLite {
			return target
		}
	}
	t.Fatal("no target is SQLite")
	return testdb.Target{}
}

// useAtOnce opens count connections at the same time, and then returns them to the pool.
func useAtOnce(t *testing.T, db *sql.DB, count int) {
	t.Helper()
	var all []*sql.Conn
	for range count {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	for _, conn := range all {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// In some modes pgx receives all values as text, and then can't read every style of dates and bytea. In all modes it reads text as UTF-8.
// Open refuses a pool with settings that pgx can't read, and names the setting.
func TestPostgresPoolThatCannotReadTextsIsRefused(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Driver != "pgx" {
			continue
		}
		for _, mode := range []string{"exec", "simple_protocol", "cache_statement"} {
			for setting, name := range map[string]string{"datestyle = 'SQL, DMY'": "DateStyle", "bytea_output = 'escape'": "bytea_output", "client_encoding = 'LATIN1'": "client_encoding"} {
				t.Run(target.Name+"/"+mode+"/"+name, func(t *testing.T) {
					t.Parallel()
					table := open(t, target)
					var database string
					if err := table.DB.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&database); err != nil {
						t.Fatal(err)
					}
					if _, err := table.DB.ExecContext(t.Context(), "ALTER DATABASE "+database+" SET "+setting); err != nil {
						t.Fatal(err)
					}
					pool, err := sql.Open(table.Driver, table.DSN+"&default_query_exec_mode="+mode)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = pool.Close() }()
					_, err = sqlstore.Open(t.Context(), pool, table.dialect, sqlstore.Options{})
					if refused := err != nil && strings.Contains(err.Error(), name); refused != (mode != "cache_statement" || name == "client_encoding") {
						t.Errorf("Open: %v, want an error that names the setting only if pgx can't read it", err)
					}
				})
			}
		}
	}
}
