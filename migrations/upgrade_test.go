package migrations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
)

// later returns the Migrations of a later release, which has one more step.
func later(t *testing.T, db testdb.Database) *migrations.Migrations {
	t.Helper()
	m := migrator(t, db, db.DB, migrations.Options{})
	if isMySQL(db.Kind) {
		m.AddStep("-- +goose NO TRANSACTION\n\n-- +goose Up\n\nCREATE TABLE outbox_later (id int);\n\n-- +goose Down\n\nDROP TABLE outbox_later;\n")
	} else {
		m.AddStep("-- +goose Up\n\nCREATE TABLE outbox_later (id int);\n\n-- +goose Down\n\nDROP TABLE outbox_later;\n")
	}
	return m
}

func TestALaterReleaseAppliesOnlyItsStep(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		if _, err := migrator(t, db, db.DB, migrations.Options{}).Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, db.DB, "INSERT INTO outbox (topic) VALUES ('a')")
		m := later(t, db)
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 1 || applied[0].Name != "00003_later.sql" {
			t.Fatalf("Up = %v, %v; want the later step alone", applied, err)
		}
		if taken, err := m.Down(t.Context()); err != nil || taken == nil || taken.Name != "00003_later.sql" {
			t.Fatalf("Down = %v, %v; want the later step", taken, err)
		}
		if slices.Contains(relations(t, db), "outbox_later") {
			t.Error("the later step's table exists after Down")
		}
		if waiting, err := m.Undelivered(t.Context()); err != nil || waiting != 1 {
			t.Errorf("%d messages, %v; want the one from before the upgrade", waiting, err)
		}
	})
}

// While one process rolls back a migration and has already dropped a table, another process counts the messages.
func TestMessagesAreCountedWhileTablesAreDropped(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{})
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, db.DB, "INSERT INTO outbox (topic) VALUES ('a')")
		exec(t, db.DB, "DROP VIEW outbox_messages")
		exec(t, db.DB, "DROP TABLE outbox_held")
		if waiting, err := m.Undelivered(t.Context()); err != nil || waiting != 1 {
			t.Errorf("%d messages, %v; want 1", waiting, err)
		}
	})
}

// An outbox of the first version, with messages that an older relay has written, is upgraded in place and back.
func TestUpgradeKeepsTheMessages(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{})
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if taken, err := m.Down(t.Context()); err != nil || taken == nil || taken.Version != 2 {
			t.Fatalf("Down = %v, %v; want the second step", taken, err)
		}
		exec(t, db.DB, "INSERT INTO outbox (topic, last_error) VALUES ('a', 'an older relay wrote this')")
		want := func(when, query, want string) {
			t.Helper()
			var got string
			if err := db.DB.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
				t.Errorf("%s, %s: %q, %v; want %q", when, query, got, err, want)
			}
		}
		const version, message = "SELECT value FROM outbox_settings WHERE name = 'schema'", "SELECT last_error FROM outbox_messages WHERE topic = 'a'"
		want("before the upgrade", version, "1")
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 1 {
			t.Fatalf("Up = %v, %v; want the second step alone", applied, err)
		}
		want("after the upgrade", version, "2")
		want("after the upgrade", message, "an older relay wrote this")
		want("after the upgrade", "SELECT count(*) FROM outbox_messages WHERE attempt_log IS NULL", "1")
		if _, err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("after Down", version, "1")
		want("after Down", message, "an older relay wrote this")
	})
}

// A transaction that has used the tables delays an upgrade, which is tried again until the transaction has ended.
func TestUpgradeWaitsForAnOpenTransaction(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		if db.Kind != testdb.Postgres {
			return
		}
		m := migrator(t, db, db.DB, migrations.Options{})
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		tx, err := db.OpenAnother(t).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO outbox (topic) VALUES ('a')"); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := m.Up(t.Context())
			ended <- err
		}()
		const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE%'"
		for blocked := 0; blocked == 0; {
			if err := db.DB.QueryRowContext(t.Context(), waiting).Scan(&blocked); err != nil {
				t.Fatal(err)
			}
		}
		// Before Up tries again, it stops waiting for the lock, so another writer can commit.
		exec(t, db.DB, "INSERT INTO outbox (topic) VALUES ('b')")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("Up: %v", err)
		}
	})
}

// A team that uses its own migration tool adds the new steps of a release as one migration.
func TestPrintAfterAVersion(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := later(t, db)
		var all, after strings.Builder
		if err := m.Print(&all); err != nil {
			t.Fatal(err)
		}
		if err := m.PrintAfter(&after, migrations.Version); err != nil {
			t.Fatal(err)
		}
		first, isEnd := strings.CutSuffix(all.String(), after.String())
		if !isEnd || !strings.HasPrefix(after.String(), "-- 00003_later.sql") {
			t.Fatalf("after the present version it printed %.100q", after.String())
		}
		for _, text := range []string{first, after.String()} {
			for _, script := range scripts(db.Kind, text) {
				exec(t, db.DB, script)
			}
		}
		if !slices.Contains(relations(t, db), "outbox_later") {
			t.Error("the later step's table doesn't exist")
		}
	})
}
