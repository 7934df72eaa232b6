package migrations_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
)

// After a restore from a dump without data, all tables exist and are empty. Up inserts their fixed rows.
func TestUpRestoresTheRowsOfACopiedStructure(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{})
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, name := range relations(t, db) {
			if name == "outbox_lanes" || name == "outbox_settings" || name == "outbox_schema_version" || strings.HasSuffix(name, "_locks") {
				exec(t, db.DB, "DELETE FROM "+name)
			}
		}
		for range 2 {
			if _, err := m.Up(t.Context()); err != nil {
				t.Fatalf("Up: %v", err)
			}
		}
		if pending, err := m.Pending(t.Context()); err != nil || len(pending) != 0 {
			t.Errorf("Pending = %v, %v; want nothing", pending, err)
		}
		for query, want := range map[string]string{
			"SELECT count(*) FROM outbox_lanes":                       "64",
			"SELECT value FROM outbox_settings WHERE name = 'schema'": strconv.Itoa(migrations.Version),
			"SELECT max(version_id) FROM outbox_schema_version":       strconv.Itoa(migrations.Version),
			"SELECT count(*) FROM outbox_settings":                    "2",
		} {
			var got string
			if err := db.DB.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", query, got, err, want)
			}
		}
	})
}

// After a restore from a dump without data of an older release's tables, Up also adds what later steps add.
func TestUpCompletesACopiedStructureOfAnOlderRelease(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{})
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		for version := migrations.Version; version > 1; version-- {
			if _, err := m.Down(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"outbox_settings", "outbox_schema_version"} {
			exec(t, db.DB, "DELETE FROM "+name)
		}
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, db.DB, "INSERT INTO outbox (topic) VALUES ('a')")
		for query, want := range map[string]string{
			"SELECT count(*) FROM outbox_messages WHERE attempt_log IS NULL":     "1",
			"SELECT value FROM outbox_settings WHERE name = 'schema'":            strconv.Itoa(migrations.Version),
			"SELECT value FROM outbox_settings WHERE name = 'schema_compatible'": "1",
			"SELECT max(version_id) FROM outbox_schema_version":                  strconv.Itoa(migrations.Version),
		} {
			var got string
			if err := db.DB.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", query, got, err, want)
			}
		}
	})
}

// On databases that commit each CREATE, a failed first migration leaves goose's table without a row. The next Up must
// still report the cause, and must create the tables once the cause is gone.
func TestUpRecoversFromAFailedFirstMigration(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		if !isMySQL(db.Kind) {
			return
		}
		var name string
		if err := db.DB.QueryRowContext(t.Context(), "SELECT database()").Scan(&name); err != nil {
			t.Fatal(err)
		}
		user := "u" + name[len(name)-12:]
		exec(t, db.DB, "CREATE USER "+user+"@'%' IDENTIFIED BY 'secret'")
		t.Cleanup(func() { _, _ = db.DB.Exec("DROP USER " + user + "@'%'") })
		exec(t, db.DB, "GRANT CREATE, DROP, ALTER, INDEX, REFERENCES, SELECT ON "+name+".* TO "+user+"@'%'")
		limited := db
		_, host, _ := strings.Cut(db.DSN, "@")
		limited.DSN = user + ":secret@" + host
		up := func() error { // on new connections, because a connection keeps the rights that it had
			_, err := migrator(t, db, limited.OpenAnother(t), migrations.Options{}).Up(t.Context())
			return err
		}
		for range 2 {
			if err := up(); err == nil || !strings.Contains(err.Error(), "INSERT command denied") {
				t.Fatalf("Up without the right to INSERT: %v, want this cause", err)
			}
		}
		exec(t, db.DB, "GRANT INSERT, UPDATE, CREATE VIEW ON "+name+".* TO "+user+"@'%'")
		if err := up(); err != nil {
			t.Fatalf("Up with all rights: %v", err)
		}
	})
}
