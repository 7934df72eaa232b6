package sqlstore_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

// A purge deletes message ids that are older than the retention, except ids of messages that are pending
// or parked. While old rows are pending, it deletes only ids that are older than these rows, with a
// margin for differences of clocks.
func TestPurgeDeletesOldMessageIDs(t *testing.T) {
	eachTable(t, func(t *testing.T, table table) {
		writer, err := outbox.NewWriter(table.dialect, outbox.Options{Duplicates: outbox.RefuseDuplicates})
		if err != nil {
			t.Fatal(err)
		}
		write := func() (id string) {
			t.Helper()
			id = outbox.NewID()
			tx, err := table.DB.BeginTx(t.Context(), nil)
			if err == nil {
				err = writer.Write(t.Context(), tx, outbox.Message{ID: id, Topic: "t"})
			}
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		store := table.open(t)
		knows := func(purged int, want ...string) {
			t.Helper()
			n, err := store.Purge(t.Context(), 24*time.Hour, 100)
			if err != nil || n != purged {
				t.Errorf("purged %d ids, want %d; %v", n, purged, err)
			}
			slices.Sort(want)
			if got := texts(t, table, "SELECT "+asText(table, "message_id")+" FROM outbox_ids ORDER BY 1"); !slices.Equal(got, want) {
				t.Errorf("the table has the ids %v, want %v", got, want)
			}
		}

		parked, gone, pending := write(), write(), write()
		exec(t, table.DB, "INSERT INTO outbox_held (id, lane, state, message_id, topic, priority, attempts, crashes, created_at)"+
			" SELECT id, lane, 'error', message_id, topic, priority, 1, 0, created_at FROM outbox WHERE message_id = '"+parked+"'")
		exec(t, table.DB, "DELETE FROM outbox WHERE message_id <> '"+pending+"'")
		knows(0, parked, gone, pending)
		exec(t, table.DB, "UPDATE outbox_ids SET written_at = "+ago(table, 30))
		exec(t, table.DB, "UPDATE outbox SET created_at = "+ago(table, 30))
		knows(0, parked, gone, pending)
		exec(t, table.DB, "UPDATE outbox_ids SET written_at = "+ago(table, 40)+" WHERE message_id = '"+gone+"'")
		knows(1, parked, pending)
		exec(t, table.DB, "DELETE FROM outbox")
		fresh := write()
		exec(t, table.DB, "DELETE FROM outbox")
		knows(1, parked, fresh)
		exec(t, table.DB, "DELETE FROM outbox_held")
		knows(1, fresh)
	})
}

// ago returns the time this number of hours ago, as a literal for the tables.
func ago(table table, hours int) string {
	at := time.Now().UTC().Add(-time.Duration(hours) * time.Hour).Format("2006-01-02 15:04:05.000")
	if table.Kind == testdb.Postgres {
		at += "+00"
	}
	return "'" + at + "'"
}

func asText(table table, column string) string {
	if isMySQL(table.Kind) {
		return column
	}
	return "CAST(" + column + " AS text)"
}

func texts(t *testing.T, table table, query string) (found []string) {
	t.Helper()
	rows, err := table.DB.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		found = append(found, text)
	}
	return found
}
