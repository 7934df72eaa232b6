package sqlstore_test

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A TRUNCATE resets the ids, so a new row gets the id of a delivered one. The new row is delivered, too,
// and doesn't replace the old one.
func TestMySQLIDsReusedAfterTruncateAreSettled(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		store, _, fences := lease(t, m.table, "r")
		o := newObserver(t, store.(*sqlstore.Store))
		deliver := func(topic string) {
			t.Helper()
			exec(t, m.DB, "TRUNCATE TABLE outbox")
			tx := m.Begin(t)
			tx.Insert(outbox.Message{Topic: topic, Key: "k"})
			tx.Commit()
			rows := o.look().Rows
			settled, err := store.Settle(t.Context(), "r", true, []storage.Settlement{done(rows[0], fences)})
			if err != nil || settled.Changed != 1 {
				t.Fatalf("settled %+v, %v", settled, err)
			}
			var finished string
			if err := m.DB.QueryRow("SELECT topic FROM outbox_done WHERE id = 1 AND topic = ?", topic).Scan(&finished); err != nil {
				t.Errorf("message %q isn't in outbox_done: %v", topic, err)
			}
		}
		deliver("first")
		deliver("second")
		var count int
		if err := m.DB.QueryRow("SELECT count(*) FROM outbox_done").Scan(&count); err != nil || count != 2 {
			t.Errorf("outbox_done has %d rows, %v; want both", count, err)
		}
	})
}
