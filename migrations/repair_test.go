package migrations_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
)

// A dump of the structure alone has all tables, and no row in any.
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
			"SELECT value FROM outbox_settings WHERE name = 'schema'": "1",
			"SELECT max(version_id) FROM outbox_schema_version":       "1",
		} {
			var got string
			if err := db.DB.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s, %v; want %s", query, got, err, want)
			}
		}
	})
}

// A first migration that failed leaves goose's table without a row on databases that commit each CREATE. The
// next one tells the cause, and with it out of the way makes the tables.
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
		up := func() error { // on new connections, as a connection keeps the rights that it had
			_, err := migrator(t, db, limited.OpenAnother(t), migrations.Options{}).Up(t.Context())
			return err
		}
		for range 2 {
			if err := up(); err == nil || !strings.Contains(err.Error(), "INSERT command denied") {
				t.Fatalf("Up without the right to INSERT: %v, want this cause", err)
			}
		}
		exec(t, db.DB, "GRANT INSERT, CREATE VIEW ON "+name+".* TO "+user+"@'%'")
		if err := up(); err != nil {
			t.Fatalf("Up with all rights: %v", err)
		}
	})
}
