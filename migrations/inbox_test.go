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

// eachInbox runs the check on every database, including SQL Server and Oracle.
func eachInbox(t *testing.T, check func(*testing.T, testdb.Database, dialect.Dialect)) {
	t.Parallel()
	targets := targets()
	for _, target := range testdb.Targets() {
		if target.Kind == testdb.SQLServer || target.Kind == testdb.Oracle {
			targets = append(targets, target)
		}
	}
	for _, target := range targets {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			d, err := dialect.ByName(target.Kind)
			if err != nil {
				t.Fatal(err)
			}
			check(t, target.Open(t), d)
		})
	}
}

func inboxMigrator(t *testing.T, pool *sql.DB, d dialect.Dialect) *migrations.Migrations {
	t.Helper()
	m, err := migrations.NewInbox(pool, d, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestInboxUpAndDownFromSeveralProcesses(t *testing.T) {
	eachInbox(t, func(t *testing.T, db testdb.Database, d dialect.Dialect) {
		var group sync.WaitGroup
		for range 2 {
			for range 4 {
				m := inboxMigrator(t, db.OpenAnother(t), d)
				group.Go(func() {
					if _, err := m.Up(t.Context()); err != nil {
						t.Errorf("Up: %v", err)
					}
				})
			}
			group.Wait()
			exec(t, db.DB, "INSERT INTO inbox (consumer, message_id) VALUES ('billing', 'a')")
			if status, err := inboxMigrator(t, db.DB, d).Status(t.Context()); err != nil || len(status) != 1 || status[0].AppliedAt.IsZero() {
				t.Errorf("Status = %v, %v; want one applied step", status, err)
			}
			for range 2 {
				m := inboxMigrator(t, db.OpenAnother(t), d)
				group.Go(func() {
					if _, err := m.Down(t.Context()); err != nil {
						t.Errorf("Down: %v", err)
					}
				})
			}
			group.Wait()
		}
	})
}

// The migrations of an outbox and an inbox in one database don't affect each other.
func TestInboxAndOutboxMigrateIndependently(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		d, err := dialect.ByName(db.Kind)
		if err != nil {
			t.Fatal(err)
		}
		outbox := migrator(t, db, db.DB, migrations.Options{})
		if applied, err := inboxMigrator(t, db.DB, d).Up(t.Context()); err != nil || len(applied) != 1 {
			t.Fatalf("Up of the inbox = %v, %v; want one step", applied, err)
		}
		if applied, err := outbox.Up(t.Context()); err != nil || len(applied) != migrations.Version {
			t.Fatalf("Up = %v, %v; want all steps", applied, err)
		}
		for range migrations.Version {
			if taken, err := outbox.Down(t.Context()); err != nil || taken == nil {
				t.Fatalf("Down = %v, %v; want a step", taken, err)
			}
		}
		exec(t, db.DB, "INSERT INTO inbox (consumer, message_id) VALUES ('billing', 'a')")
	})
}

func TestPrintedInboxSQLCreatesTheInbox(t *testing.T) {
	eachInbox(t, func(t *testing.T, db testdb.Database, d dialect.Dialect) {
		m := inboxMigrator(t, db.DB, d)
		var text strings.Builder
		if err := inboxMigrator(t, nil, d).Print(&text); err != nil {
			t.Fatal(err)
		}
		for _, script := range scripts(db.Kind, text.String()) {
			exec(t, db.DB, script)
		}
		exec(t, db.DB, "INSERT INTO inbox (consumer, message_id) VALUES ('billing', 'a')")
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 0 {
			t.Errorf("Up = %v, %v; want nothing to do", applied, err)
		}
		if strings.Contains(text.String(), "outbox") {
			t.Errorf("printed:\n%s", text.String())
		}
	})
}

func TestInboxesWithOtherNames(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		d, err := dialect.ByName(db.Kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Received", "select", "a_table_with_a_name_as_long_as_any_may_b"} {
			m, err := migrations.NewInbox(db.DB, d, name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Up(t.Context()); err != nil {
				t.Errorf("Up of %s: %v", name, err)
			}
			if pending, err := m.Pending(t.Context()); err != nil || len(pending) != 0 {
				t.Errorf("Pending of %s = %v, %v; want nothing", name, pending, err)
			}
			if taken, err := m.Down(t.Context()); err != nil || taken == nil {
				t.Errorf("Down of %s = %v, %v; want a step", name, taken, err)
			}
		}
	})
	if _, err := migrations.NewInbox(nil, dialect.Postgres(), "no;table"); err == nil {
		t.Error("NewInbox accepts an invalid table name, want an error")
	}
}
