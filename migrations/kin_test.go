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
