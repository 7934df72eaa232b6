package migrations_test

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func each(t *testing.T, check func(*testing.T, testdb.Database)) {
	t.Parallel()
	for _, target := range targets() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			check(t, target.Open(t))
		})
	}
}

// targets returns all test targets except SQL Server and Oracle; MySQL and MariaDB appear with one driver only.
func targets() []testdb.Target {
	return slices.DeleteFunc(testdb.Each(), func(target testdb.Target) bool {
		return isMySQL(target.Kind) && !strings.HasSuffix(target.Name, "/gosql") || target.Kind == testdb.SQLServer || target.Kind == testdb.Oracle
	})
}

func isMySQL(kind string) bool { return kind == testdb.MySQL || kind == testdb.MariaDB }

func migrator(t *testing.T, db testdb.Database, pool *sql.DB, options migrations.Options) *migrations.Migrations {
	t.Helper()
	d, err := dialect.ByName(db.Kind)
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrations.New(pool, d, options)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func relations(t *testing.T, db testdb.Database) []string {
	t.Helper()
	query := "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
	if db.Kind == testdb.Postgres {
		query = "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
	}
	if isMySQL(db.Kind) {
		query = "SELECT table_name FROM information_schema.tables WHERE table_schema = database()"
	}
	rows, err := db.DB.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

func exec(t *testing.T, pool *sql.DB, statement string) {
	t.Helper()
	if _, err := pool.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestUpAndDown(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{})
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != migrations.Version {
			t.Fatalf("Up = %v, %v; want all steps", applied, err)
		}
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 0 {
			t.Fatalf("a second Up = %v, %v; want nothing to do", applied, err)
		}
		status, err := m.Status(t.Context())
		if err != nil || len(status) != migrations.Version || !status[0].Applied || status[0].AppliedAt.IsZero() {
			t.Fatalf("Status = %v, %v; want all steps applied", status, err)
		}
		exec(t, db.DB, "INSERT INTO outbox (topic) VALUES ('a')")
		for range migrations.Version {
			if taken, err := m.Down(t.Context()); err != nil || taken == nil {
				t.Fatalf("Down = %v, %v; want a step", taken, err)
			}
		}
		if taken, err := m.Down(t.Context()); err != nil || taken != nil {
			t.Fatalf("one more Down = %v, %v; want nothing", taken, err)
		}
		for _, name := range relations(t, db) {
			if !strings.Contains(name, "schema_version") {
				t.Errorf("%s is left after Down", name)
			}
		}
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != migrations.Version {
			t.Fatalf("Up after Down = %v, %v; want all steps", applied, err)
		}
	})
}

// The pool of an application may have been opened without parameters, so that the driver returns times as bytes.
func TestUpWithADriverThatDoesNotParseTimes(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		if !isMySQL(db.Kind) {
			return
		}
		plain := db
		plain.DSN, _, _ = strings.Cut(db.DSN, "?")
		m := migrator(t, db, plain.OpenAnother(t), migrations.Options{})
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != migrations.Version {
			t.Fatalf("Up = %v, %v; want all steps", applied, err)
		}
		if status, err := m.Status(t.Context()); err != nil || !status[0].Applied || status[0].AppliedAt.IsZero() {
			t.Errorf("Status = %v, %v; want one applied step", status, err)
		}
		if taken, err := m.Down(t.Context()); err != nil || taken == nil {
			t.Errorf("Down = %v, %v; want a step", taken, err)
		}
	})
}

func TestStatusChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{Table: "some_table"})
		pending, err := m.Pending(t.Context())
		if err != nil || len(pending) != migrations.Version {
			t.Fatalf("Pending = %v, %v; want all steps", pending, err)
		}
		if taken, err := m.Down(t.Context()); err != nil || taken != nil {
			t.Fatalf("Down = %v, %v; want nothing", taken, err)
		}
		if names := relations(t, db); len(names) != 0 {
			t.Errorf("Pending and Down created %v, want nothing", names)
		}
	})
}

func TestSeveralProcessesMigrateConcurrently(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		var group sync.WaitGroup
		for range 4 {
			m := migrator(t, db, db.OpenAnother(t), migrations.Options{Claim: "rows"})
			group.Go(func() {
				if _, err := m.Up(t.Context()); err != nil {
					t.Errorf("Up: %v", err)
				}
			})
		}
		group.Wait()
		var lanes int
		if err := db.DB.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_lanes").Scan(&lanes); err != nil || lanes != 64 {
			t.Errorf("%d lanes, %v; want 64", lanes, err)
		}
		for range migrations.Version {
			for range 4 {
				m := migrator(t, db, db.OpenAnother(t), migrations.Options{})
				group.Go(func() {
					if _, err := m.Down(t.Context()); err != nil {
						t.Errorf("Down: %v", err)
					}
				})
			}
			group.Wait()
		}
		if pending, err := migrator(t, db, db.DB, migrations.Options{}).Pending(t.Context()); err != nil || len(pending) != migrations.Version {
			t.Errorf("after Down Pending = %v, %v; want all steps", pending, err)
		}
	})
}

func TestUpNeedsOnlyOneConnection(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		pool := db.OpenAnother(t)
		pool.SetMaxOpenConns(1)
		if _, err := migrator(t, db, pool, migrations.Options{}).Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := pool.PingContext(t.Context()); err != nil {
			t.Errorf("the pool was closed: %v", err)
		}
	})
}

func TestTablesWithOtherNames(t *testing.T) {
	names := map[string][]string{
		testdb.Postgres: {"jobs", "Order", "app.outbox", "app.Events", "select"},
		testdb.SQLite:   {"jobs", "Order", "main.outbox", "main.Events", "select"},
		testdb.MySQL:    {"jobs", "Order", "select", "rank", "a_table_with_a_name_as_long_as_any_may_be"[:40]},
		testdb.MariaDB:  {"jobs", "Order", "select", "rank", "a_table_with_a_name_as_long_as_any_may_be"[:40]},
	}
	each(t, func(t *testing.T, db testdb.Database) {
		if db.Kind == testdb.Postgres {
			exec(t, db.DB, "CREATE SCHEMA app")
		}
		for _, name := range names[db.Kind] {
			m := migrator(t, db, db.DB, migrations.Options{Table: name, Claim: "rows"})
			if _, err := m.Up(t.Context()); err != nil {
				t.Fatalf("Up of %s: %v", name, err)
			}
			if pending, err := m.Pending(t.Context()); err != nil || len(pending) != 0 {
				t.Errorf("Pending of %s = %v, %v; want nothing", name, pending, err)
			}
			if _, err := m.Down(t.Context()); err != nil {
				t.Errorf("Down of %s: %v", name, err)
			}
		}
	})
}

func TestUpAsksToCreateAMissingSchema(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{Table: "nowhere.outbox"})
		if _, err := m.Up(t.Context()); err == nil || !strings.Contains(err.Error(), "create the schema nowhere first") {
			t.Errorf("Up = %v, want a hint to create the schema", err)
		}
	})
}

// Tools that split the SQL at semicolons, such as Django's, treat a comment after the last semicolon as a
// statement. MySQL and MariaDB refuse a statement that has only a comment.
func TestPrintedSQLEndsWithAStatement(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.Postgres(), dialect.MySQL(), dialect.MariaDB(), dialect.SQLite(), dialect.SQLServer(), dialect.Oracle()} {
		options := migrations.Options{}
		if d.Name() == "postgres" {
			options.Notify = "on"
		}
		m, err := migrations.New(nil, d, options)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := m.Print(&text); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if last := lines[len(lines)-1]; strings.HasPrefix(last, "--") {
			t.Errorf("%s: the printed SQL ends with the comment %q", d.Name(), last)
		}
	}
}

func TestPrintedSQLCreatesTheOutbox(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{Claim: "rows"})
		var text strings.Builder
		if err := m.Print(&text); err != nil {
			t.Fatal(err)
		}
		for _, script := range scripts(db.Kind, text.String()) {
			exec(t, db.DB, script)
		}
		exec(t, db.DB, "INSERT INTO outbox (topic) VALUES ('a')")
		if pending, err := m.Pending(t.Context()); err != nil || len(pending) != 0 {
			t.Errorf("Pending = %v, %v; want nothing", pending, err)
		}
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 0 {
			t.Errorf("Up = %v, %v; want nothing to do", applied, err)
		}
		if _, err := m.Down(t.Context()); err == nil || !strings.Contains(err.Error(), "rowrelay migrate print") {
			t.Errorf("Down = %v, want an error that says how to roll back the printed SQL", err)
		}
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 0 {
			t.Errorf("Up after Down = %v, %v; want nothing to do", applied, err)
		}
		if !strings.Contains(strings.ReplaceAll(text.String(), "`", ""), "\n-- DROP TABLE outbox;\n") {
			t.Error("the statements that roll the step back are not printed as a comment")
		}
	})
}

// scripts splits the printed SQL into parts that a driver accepts in one call.
func scripts(kind, text string) (parts []string) {
	if !isMySQL(kind) {
		return []string{text}
	}
	for part := range strings.SplitAfterSeq(text, ";\n") {
		if lines := regexp.MustCompile(`(?m)^--.*\n`).ReplaceAllString(part, ""); strings.TrimSpace(lines) != "" {
			parts = append(parts, lines)
		}
	}
	return parts
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, options := range []migrations.Options{{Table: "no;table"}, {Table: "a.b.c"}, {Claim: "row"}} {
		if _, err := migrations.New(nil, dialect.Postgres(), options); err == nil {
			t.Errorf("New accepts %+v, want an error", options)
		}
	}
}

// A released migration is never edited, because outboxes that have applied it
// would not get the change. Add a step instead.
func TestPublishedFilesAreUnchanged(t *testing.T) {
	t.Parallel()
	published := map[string]string{
		"mysql/migrations/inbox/00001_inbox.sql":            "00bd0e1bd7a0178c",
		"mysql/migrations/outbox/00001_outbox.sql":          "e01b6f478e40b256",
		"mysql/migrations/outbox/00002_attempt_log.sql":     "bfc4d61006b86c3c",
		"oracle/migrations/inbox/00001_inbox.sql":           "f229ac297f236e08",
		"oracle/migrations/outbox/00001_outbox.sql":         "50644b6ce300dfff",
		"oracle/migrations/outbox/00002_attempt_log.sql":    "eb63af0664c02113",
		"postgres/migrations/inbox/00001_inbox.sql":         "2ebb49f12e6e8a25",
		"postgres/migrations/outbox/00001_outbox.sql":       "e8b3a15b2a585101",
		"postgres/migrations/outbox/00002_attempt_log.sql":  "6412283d6b74298a",
		"sqlite/migrations/inbox/00001_inbox.sql":           "e5c499ad212269a1",
		"sqlite/migrations/outbox/00001_outbox.sql":         "d04fffadfa64cf40",
		"sqlite/migrations/outbox/00002_attempt_log.sql":    "29f8527f325a756b",
		"sqlserver/migrations/inbox/00001_inbox.sql":        "0441d988074cb420",
		"sqlserver/migrations/outbox/00001_outbox.sql":      "7d26c1184b6ad5c8",
		"sqlserver/migrations/outbox/00002_attempt_log.sql": "868535c90c1203e4",
	}
	const folder = "../relay/sqlstore/"
	found, err := filepath.Glob(folder + "*/migrations/*/*.sql")
	if err != nil || len(found) != len(published) {
		t.Errorf("the files are %v, %v; want each of them in this test", found, err)
	}
	for name, want := range published {
		text, err := os.ReadFile(folder + name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if got := hex.EncodeToString(sum[:8]); got != want {
			t.Errorf("%s was edited: its hash is %s, it was published with %s", name, got, want)
		}
	}
}
