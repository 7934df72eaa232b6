package outboxdb_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
)

// The lane of a key doesn't depend on the session's settings. With session_replication_role =
// replica, most triggers don't run, and a schema that is searched first may have a function with
// the name of the hash function.
func TestLaneOfAKeyDependsOnNoSetting(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		db.exec(t, "CREATE SCHEMA first")
		db.exec(t, "CREATE FUNCTION first.hashtextextended(text, int) RETURNS bigint LANGUAGE sql AS 'SELECT 99::bigint'")
		writer := newWriter(t, db.dialect, outbox.Options{})
		settings := []string{"application_name = 'plain'", "session_replication_role = 'replica'", "search_path = first, public"}
		for _, setting := range settings {
			tx := db.begin(t)
			for _, statement := range []string{"SET LOCAL " + setting, "INSERT INTO outbox (topic, message_key, lane) VALUES ('t', 'k', 99)"} {
				if _, err := tx.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %s: %v", setting, statement, err)
				}
			}
			if err := writer.Write(t.Context(), tx, outbox.Message{Topic: "t", Key: "k"}); err != nil {
				t.Fatalf("%s: %v", setting, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		rows := db.rows(t)
		if len(rows) != 2*len(settings) {
			t.Fatalf("%d rows were written, want two for each setting", len(rows))
		}
		for i, row := range rows {
			if row.Lane != rows[0].Lane || row.Lane > 63 {
				t.Errorf("%s: the lane is %d, want %d", settings[i/2], row.Lane, rows[0].Lane)
			}
		}
	})
}
