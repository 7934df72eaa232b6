package e2e

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A database with an outbox moves from PostgreSQL 15 to 18 by logical replication of all its
// tables, as in an upgrade, while relays deliver on the old server. Replication has no errors,
// and delivery continues on the new server where it stopped on the old one.
func TestLogicalReplicationOfAnOutbox(t *testing.T) {
	t.Parallel()
	older := newOwn(t, "postgres15", testdb.Postgres, "-c", "wal_level=logical")
	newer := newOwn(t, "postgres18", testdb.Postgres, "-c", "wal_level=logical")
	older.start()
	newer.start()
	was, is, e := older.scene(older.address(), "shop", ""), newer.scene(newer.address(), "shop", ""), newEndpoint(t)
	was.unrecorded = "two scenes share the endpoint"
	is.unrecorded = was.unrecorded
	execute := func(s *scene, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := s.DB.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	older.replicateTo(was, is)
	caughtUp := func() {
		t.Helper()
		var end string
		check(t, was.DB.QueryRowContext(t.Context(), "SELECT pg_current_wal_lsn()").Scan(&end))
		eventually(t, "the subscriber has applied everything", func() bool {
			if failed := is.number("SELECT apply_error_count + sync_error_count FROM pg_stat_subscription_stats"); failed > 0 {
				t.Fatalf("the subscriber stopped: %s", newer.said())
			}
			return was.number("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'upgrade' AND confirmed_flush_lsn >= '"+end+"'") == 1
		})
		const counts = "SELECT coalesce(string_agg(state || ' ' || n, ', ' ORDER BY state), '') FROM (SELECT state, count(*) AS n FROM outbox_messages GROUP BY state) AS c"
		var there, here string
		check(t, was.DB.QueryRowContext(t.Context(), counts).Scan(&there))
		check(t, is.DB.QueryRowContext(t.Context(), counts).Scan(&here))
		if t.Logf("the publisher has %s", there); there != here {
			t.Errorf("the subscriber has %s, the publisher %s", here, there)
		}
	}

	written := 0
	for i, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		was.writeOrders(300, 1+1000*i)
		written += 300
		execute(was, "INSERT INTO outbox (topic, message_key, payload, available_at) VALUES ('later', 'k', '{}', now() + interval '1 day')")
		check(t, was.drain(e, "--claim", string(claim)))
		caughtUp()
	}
	execute(was, "UPDATE outbox_held SET available_at = now() + interval '2 days'", "DELETE FROM outbox_done WHERE id = (SELECT min(id) FROM outbox_done)",
		"INSERT INTO outbox_controls (kind, name, made_at) VALUES ('topic', 'none', now())", "UPDATE outbox_controls SET reason = 'test'", "DELETE FROM outbox_controls",
		"INSERT INTO outbox_actions (id, made_at, action) VALUES (gen_random_uuid(), now(), 'test')", "UPDATE outbox_actions SET changed = 1", "DELETE FROM outbox_actions",
		"INSERT INTO outbox_ids (message_id) VALUES (gen_random_uuid())", "UPDATE outbox_ids SET write_token = 1", "DELETE FROM outbox_ids", "DELETE FROM outbox_relays")
	was.writeOrders(200, 5001)
	written += 200
	caughtUp()

	execute(is, cutOver...)
	is.writeOrders(100, 9001)
	written += 100
	check(t, is.drain(e, "--claim", string(storage.ByRows)))
	v := tally(t, e.received())
	if v.distinct != written || len(e.received()) != written {
		t.Errorf("%d of %d messages arrived, %d times again", v.distinct, written, len(e.received())-v.distinct)
	}
	if left := is.left(); left != 0 {
		t.Errorf("%d messages are left on the new server", left)
	}
}

// replicateTo makes a scene on another server the subscriber of all tables of a scene on this server, and waits until it has copied them.
func (s *own) replicateTo(was, is *scene) {
	s.t.Helper()
	host, port, err := net.SplitHostPort(s.address())
	check(s.t, err)
	_, err = was.DB.ExecContext(s.t.Context(), "CREATE PUBLICATION everything FOR ALL TABLES")
	check(s.t, err)
	_, err = is.DB.ExecContext(s.t.Context(), "TRUNCATE outbox, outbox_held, outbox_done, outbox_ids, outbox_lanes, outbox_relays, outbox_controls, outbox_actions, outbox_settings, outbox_schema_version")
	check(s.t, err)
	_, err = is.DB.ExecContext(s.t.Context(), fmt.Sprintf("CREATE SUBSCRIPTION upgrade CONNECTION 'host=%s port=%s user=rowrelay password=%s dbname=shop sslmode=disable' PUBLICATION everything",
		host, port, s.secret))
	check(s.t, err)
	eventually(s.t, "the tables were copied", func() bool {
		return is.number("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == 0
	})
}

// cutOver are the statements that end a subscription, and advance the sequence.
var cutOver = []string{
	"ALTER SUBSCRIPTION upgrade DISABLE", "ALTER SUBSCRIPTION upgrade SET (slot_name = NONE)", "DROP SUBSCRIPTION upgrade",
	"SELECT setval(pg_get_serial_sequence('outbox', 'id'), (SELECT max(id) FROM outbox_messages))",
}

// A database under load moves from PostgreSQL 15 to 18 by logical replication, while relays are killed. Writers and relays lose their connections when
// the old server ends, and continue on the new one. Nothing is lost, and the order is kept.
func TestLogicalReplicationUnderLoad(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	older := newOwn(t, "postgres15", testdb.Postgres, "-c", "wal_level=logical")
	newer := newOwn(t, "postgres18", testdb.Postgres, "-c", "wal_level=logical")
	older.start()
	newer.start()
	front := newProxy(t, "127.0.0.1:0", older.address())
	was, is := older.scene(front.address(), "shop", ""), newer.scene(newer.address(), "shop", "")
	was.topology = "an upgrade from PostgreSQL 15 by logical replication"
	c := &cluster{t: t, topology: was.topology, nodes: []*own{older, newer}, address: front.address()}
	steps := []func(){
		func() { older.replicateTo(was, is) },
		func() {
			fault(t, proof.Switchover, "")
			front.redirect("127.0.0.1:1") // stops writers and relays
			front.cut()
			at := older.open(older.address(), "shop", "")
			eventually(t, "the subscriber has applied all transactions of the old server", func() bool {
				var open, behind int
				err := at.QueryRow(`SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'),
					(SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'upgrade' AND confirmed_flush_lsn < pg_current_wal_lsn())`).Scan(&open, &behind)
				return err == nil && open == 0 && behind == 0
			})
			for _, statement := range cutOver {
				_, err := is.DB.ExecContext(t.Context(), statement)
				check(t, err)
			}
			older.signal(syscall.SIGINT)
			front.redirect(newer.address())
		},
	}
	c.crash = func() {
		if len(steps) > 0 {
			steps[0]()
			steps = steps[1:]
		}
	}
	e := c.endure(was, use{}, 8*time.Second, *lastsFor)
	judgeCluster(c, was, e.received(), true)
}
