package migrations_test

import (
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// elsewhere hides that a dialect wants a server of its own: CockroachDB and
// YugabyteDB can't be had here, but PostgreSQL takes their tables.
type elsewhere struct{ dialect.Dialect }

func eachKin(t *testing.T, check func(t *testing.T, db testdb.Database, d dialect.Dialect)) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.CockroachDB(), dialect.YugabyteDB()} {
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			db := testdb.Targets()[0].Open(t)
			// CockroachDB has this function, and with it another lane for a key.
			exec(t, db.DB, "CREATE FUNCTION crc32ieee(text) RETURNS bigint LANGUAGE SQL IMMUTABLE AS 'SELECT hashtext($1)::bigint'")
			check(t, db, elsewhere{d})
		})
	}
}

func kinMigrator(t *testing.T, pool *sql.DB, d dialect.Dialect) *migrations.Migrations {
	t.Helper()
	m, err := migrations.New(pool, d, migrations.Options{Claim: "rows"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestKinUpAndDown(t *testing.T) {
	eachKin(t, func(t *testing.T, db testdb.Database, d dialect.Dialect) {
		for range 2 {
			var group sync.WaitGroup
			for range 3 {
				m := kinMigrator(t, db.OpenAnother(t), d)
				group.Go(func() {
					if _, err := m.Up(t.Context()); err != nil {
						t.Errorf("Up: %v", err)
					}
				})
			}
			group.Wait()
			exec(t, db.DB, "INSERT INTO outbox (topic, message_key, payload_text) VALUES ('a', 'k', 'x'), ('a', NULL, NULL)")
			if taken, err := kinMigrator(t, db.DB, d).Down(t.Context()); err != nil || taken == nil {
				t.Fatalf("Down = %v, %v; want a step", taken, err)
			}
		}
	})
}

// Their changes of the schema aren't part of a transaction, so what is printed
// has none, and can be repeated.
func TestKinPrintedSQL(t *testing.T) {
	eachKin(t, func(t *testing.T, db testdb.Database, d dialect.Dialect) {
		var text strings.Builder
		if err := kinMigrator(t, nil, d).Print(&text); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "BEGIN;") || strings.Contains(text.String(), "+goose") {
			t.Errorf("printed:\n%s", text.String())
		}
		exec(t, db.DB, text.String())
		exec(t, db.DB, text.String())
		if pending, err := kinMigrator(t, db.DB, d).Pending(t.Context()); err != nil || len(pending) != 0 {
			t.Errorf("Pending = %v, %v; want nothing", pending, err)
		}
	})
}

// pretending is PostgreSQL's dialect on a server that says to be another.
type pretending struct {
	dialect.Dialect
	dialect.Fitting
	version string
}

func (p pretending) Server() dialect.Query {
	return dialect.Query{SQL: "SELECT 'version', $1::text", Args: []any{p.version}}
}

func TestTablesFitTheServer(t *testing.T) {
	versions := map[string]struct{ old, new, needed string }{
		"cockroachdb": {"CockroachDB CCL v22.2.1 (x86_64)", "CockroachDB CCL v25.2.1 (x86_64)", "24.3 or later is needed"},
		"yugabytedb":  {"PostgreSQL 11.2-YB-2.20.1.3-b0 on x86_64", "PostgreSQL 15.12-YB-2025.1.1.2-b3 on x86_64", "2025.1 or later is needed"},
	}
	eachKin(t, func(t *testing.T, db testdb.Database, d dialect.Dialect) {
		postgres, version := dialect.Postgres(), versions[d.Name()]
		server := func(version string) *migrations.Migrations {
			return kinMigrator(t, db.DB, pretending{postgres, postgres.(dialect.Fitting), version})
		}
		if _, err := server(version.old).Up(t.Context()); err == nil || !strings.Contains(err.Error(), version.needed) {
			t.Errorf("Up on an old server: %v, want an error with %q", err, version.needed)
		}
		if _, err := server(version.new).Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		var xids int
		if err := db.DB.QueryRow("SELECT count(*) FROM information_schema.columns WHERE column_name = 'writer_xid'").Scan(&xids); err != nil || xids != 0 {
			t.Errorf("%d columns writer_xid, %v; want none", xids, err)
		}
	})
}
