package e2e

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"
)

// A node of Galera that takes over before it has applied all changes gives a new message a lower id than it gives to
// older messages, which it applies later. With wsrep_sync_wait, a transaction waits until the node has applied them.
func TestGaleraNodeThatLagsTakesOver(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with ROWRELAY_TEST_GALERA=$(deploy/servers/servers words galera)")
	}
	for _, test := range []struct {
		wait    string
		inOrder bool
	}{
		{"0", false}, // the default
		{"4", false}, // only INSERT waits, and only if it begins a transaction
		{"7", true},
	} {
		t.Run("wsrep_sync_wait="+test.wait, func(t *testing.T) {
			const orders = 300
			c := newGalera(t, "--wsrep-sync-wait="+test.wait)
			s := c.scene("lagging")
			if out := checked(t, s); !strings.Contains(out, "set wsrep_sync_wait to 7") {
				t.Errorf("rowrelay check doesn't recommend the setting:\n%s", out)
			}
			before, now := c.nodes[0], c.nodes[1]
			apply := stopApplying(now)
			old := clusterWriter{s, before.open(before.address(), s.Name, ""), &c.promised}
			for n := range orders {
				check(t, old.placed(t.Context(), 1, n+1, true))
			}
			db, written := now.open(now.address(), s.Name, ""), make(chan struct{})
			go func() {
				defer close(written)
				for (clusterWriter{s, db, &c.promised}).placed(context.Background(), 1, orders+1, true) != nil {
					<-time.After(10 * time.Millisecond)
				}
			}()
			eventually(t, "the new order waits", func() (waits bool) {
				check(t, apply.QueryRowContext(t.Context(), "SELECT count(*) > 0 FROM information_schema.processlist WHERE db = ? AND command <> 'Sleep'", s.Name).Scan(&waits))
				return waits
			})
			_, err := apply.ExecContext(t.Context(), "UNLOCK TABLES")
			check(t, err)
			<-written
			e := newEndpoint(t)
			s.start("relay", "run", "--database", now.url(now.address(), s.Name), "--sink", e.URL, "--longest-transaction", "5s")
			var arrivals []arrival
			eventually(t, "all messages arrive", func() bool {
				arrivals = firsts(e.received())
				return len(arrivals) == orders+1
			})
			if late := overtaken(arrivals); (late == 0) != test.inOrder {
				t.Errorf("%d messages arrived after a later one of their key; want 0: %v", late, test.inOrder)
			}
		})
	}
}

// stopApplying makes a node of Galera receive the changes of the other nodes without applying them, until the returned
// session unlocks the tables.
func stopApplying(node *own) *sql.Conn {
	node.t.Helper()
	session, err := node.open(node.address(), "", "").Conn(node.t.Context())
	check(node.t, err)
	for _, statement := range []string{"SET SESSION wsrep_sync_wait = 0", "FLUSH TABLES WITH READ LOCK"} {
		_, err = session.ExecContext(node.t.Context(), statement)
		check(node.t, err)
	}
	return session
}
