package sqlstore_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

func openMySQL57(t *testing.T) mysqlTable {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Name == "mysql57/gosql" {
			return mysqlTable{open(t, target)}
		}
	}
	t.Fatal("there is no target mysql57/gosql")
	return mysqlTable{}
}

// forget is what a start of the server does: the counter of ids goes back to the
// highest one in the table.
func (m mysqlTable) forget(t *testing.T) {
	t.Helper()
	exec(t, m.DB, "ALTER TABLE outbox AUTO_INCREMENT = 1")
}

func (m mysqlTable) insert(t *testing.T, count int) (ids []int64) {
	t.Helper()
	for range count {
		ids = append(ids, insertOne(t, m, "k"))
	}
	return ids
}

// adopt is what a relay does when it begins.
func (m mysqlTable) adopt(t *testing.T) *sqlstore.Store {
	t.Helper()
	store := m.open(t)
	if err := store.Adopt(t.Context(), relay.ByRows); err != nil {
		t.Fatal(err)
	}
	return store
}

// claimed returns a store, and a settlement for each row that it has claimed.
func (m mysqlTable) claimed(t *testing.T, state relay.State) (*sqlstore.Store, []relay.Settlement) {
	t.Helper()
	store := m.open(t)
	rows, err := store.Claim(t.Context(), relay.ClaimRequest{Relay: "a", Token: "t", TTL: time.Minute, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var settlements []relay.Settlement
	for _, row := range rows {
		settlements = append(settlements, relay.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Token: "t", State: state, Attempts: 1, Delay: time.Hour})
	}
	return store, settlements
}

// leaving are the ways in which all rows leave the table.
var leaving = map[string]func(*testing.T, mysqlTable){
	"delivered and deleted": func(t *testing.T, m mysqlTable) {
		store, settlements := m.claimed(t, relay.StateDone)
		if _, err := store.Settle(t.Context(), "a", false, settlements); err != nil {
			t.Error(err)
		}
	},
	"delivered, kept and purged": func(t *testing.T, m mysqlTable) {
		store, settlements := m.claimed(t, relay.StateDone)
		if _, err := store.Settle(t.Context(), "a", true, settlements); err != nil {
			t.Error(err)
		}
		exec(t, m.DB, "DELETE FROM outbox_done")
	},
	"parked and discarded": func(t *testing.T, m mysqlTable) {
		store, settlements := m.claimed(t, relay.StateError)
		if _, err := store.Settle(t.Context(), "a", true, settlements); err != nil {
			t.Error(err)
		}
		exec(t, m.DB, "DELETE FROM outbox_held")
	},
	"handled": func(t *testing.T, m mysqlTable) {
		store, settlements := m.claimed(t, relay.StateDone)
		for _, settlement := range settlements {
			if err := store.HandleTx(t.Context(), "a", false, settlement, func(context.Context, *sql.Tx) error { return nil }); err != nil {
				t.Error(err)
			}
		}
	},
	"deleted by hand before a relay began": func(t *testing.T, m mysqlTable) {
		store, settlements := m.claimed(t, relay.StateDone)
		if _, err := store.Settle(t.Context(), "a", true, settlements); err != nil {
			t.Error(err)
		}
		exec(t, m.DB, "DELETE FROM outbox")
		m.adopt(t)
	},
}

// MySQL 5.7 counts on from what it finds when it starts. No id comes again all
// the same, however its row has left.
func TestNoIDComesAgain(t *testing.T) {
	t.Parallel()
	for name, leave := range leaving {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := openMySQL57(t)
			m.adopt(t)
			for range 3 {
				ids := m.insert(t, 3)
				leave(t, m)
				m.forget(t)
				if next := m.insert(t, 1)[0]; next <= ids[2] {
					t.Fatalf("after %v the counter gave %d", ids, next)
				}
			}
			var floors int
			if err := m.DB.QueryRow("SELECT COUNT(*) FROM outbox WHERE lane = 64").Scan(&floors); err != nil || floors != 1 {
				t.Errorf("%d rows keep the counter, %v; want one", floors, err)
			}
		})
	}
}

// At no moment would a server that stops lose an id, whatever relays and
// producers are doing: what is committed at any moment has its highest id in the
// table.
func TestTheFloorHolds(t *testing.T) {
	t.Parallel()
	const relays, producers = 3, 3
	m := openMySQL57(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan struct{})
	for range producers {
		go func() { defer func() { done <- struct{}{} }(); m.produce(t, ctx) }()
	}
	for i := range relays {
		store := m.adopt(t)
		go func() { defer func() { done <- struct{}{} }(); consume(t, ctx, store, string(rune('a'+i))) }()
	}
	for looks, emptied := 0, 0; looks < 200 || emptied < 10; looks++ {
		highest, settled, pending := m.moment(t)
		if highest < settled {
			t.Errorf("row %d has left, and the highest id in the table is %d", settled, highest)
		}
		if settled > 0 && pending == 0 {
			emptied++
		}
	}
	stop()
	for range relays + producers {
		<-done
	}
}

// moment is what one snapshot shows.
func (m mysqlTable) moment(t *testing.T) (highest, settled int64, pending int) {
	t.Helper()
	const query = "SELECT (SELECT COALESCE(MAX(id), 0) FROM outbox), (SELECT COALESCE(MAX(id), 0) FROM outbox_done), (SELECT COUNT(*) FROM outbox WHERE lane < 64)"
	if err := m.DB.QueryRow(query).Scan(&highest, &settled, &pending); err != nil {
		t.Fatal(err)
	}
	return highest, settled, pending
}

// produce commits some messages at once, some late, and some not at all.
func (m mysqlTable) produce(t *testing.T, ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		tx := m.Begin(t)
		tx.Insert(outbox.Message{Topic: "t"})
		switch i % 5 {
		case 3:
			time.Sleep(20 * time.Millisecond)
		case 4:
			tx.Rollback()
			continue
		}
		tx.Commit()
		time.Sleep(time.Duration(i%7) * time.Millisecond)
	}
}

func consume(t *testing.T, ctx context.Context, store *sqlstore.Store, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		token := name + strings.Repeat("x", n%200)
		rows, err := store.Claim(t.Context(), relay.ClaimRequest{Relay: name, Token: token, TTL: time.Minute, Limit: 10})
		var settlements []relay.Settlement
		for _, row := range rows {
			settlements = append(settlements, relay.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Token: token, State: relay.StateDone, Attempts: 1})
		}
		if err == nil && len(settlements) > 0 {
			_, err = store.Settle(t.Context(), name, true, settlements)
		}
		if err != nil {
			t.Errorf("relay %s: %v", name, err)
		}
	}
}
