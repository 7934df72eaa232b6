package outboxdb_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rowrelay/rowrelay/outbox"
)

func TestRelaysAreNotifiedAtTheCommit(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		listener := db.listen(t, "rowrelay_outbox")
		writer := newWriter(t, db.dialect, outbox.Options{Notify: true})
		tx := db.begin(t)
		for range 2 {
			if err := writer.Write(t.Context(), tx, outbox.Message{Topic: "t"}); err != nil {
				t.Fatal(err)
			}
		}
		if got := db.heard(t, listener, "rowrelay_outbox"); len(got) > 0 {
			t.Errorf("notified %q before the commit", got)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		var oid string
		if err := db.DB.QueryRowContext(t.Context(), "SELECT 'outbox'::regclass::oid::text").Scan(&oid); err != nil {
			t.Fatal(err)
		}
		if got := db.heard(t, listener, "rowrelay_outbox"); len(got) != 1 || got[0] != oid {
			t.Errorf("notified %q, want once with the table's oid, %s", got, oid)
		}
	})
}

func (db database) listen(t *testing.T, channel string) *pgx.Conn {
	t.Helper()
	listener, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close(context.Background()) })
	if _, err := listener.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	return listener
}
