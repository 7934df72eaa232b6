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
		if applied, err := m.Up(t.Context()); err != nil || len(applied) != 1 || applied[0].Name != "00002_later.sql" {
			t.Fatalf("Up = %v, %v; want the later step alone", applied, err)
		}
		if taken, err := m.Down(t.Context()); err != nil || taken == nil || taken.Name != "00002_later.sql" {
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

// A team that uses its own migration tool adds the new steps of a release as one migration.
func TestPrintAfterAVersion(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := later(t, db)
		var all, after strings.Builder
		if err := m.Print(&all); err != nil {
			t.Fatal(err)
		}
		if err := m.PrintAfter(&after, 1); err != nil {
			t.Fatal(err)
		}
		first, isEnd := strings.CutSuffix(all.String(), after.String())
		if !isEnd || !strings.HasPrefix(after.String(), "-- 00002_later.sql") {
			t.Fatalf("after version 1 it printed %.100q", after.String())
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
