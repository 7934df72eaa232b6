package e2e

import (
	"fmt"
	"net"
	"testing"

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
	host, port, err := net.SplitHostPort(older.address())
	check(t, err)
	execute(was, "CREATE PUBLICATION everything FOR ALL TABLES")
	execute(is, "TRUNCATE outbox, outbox_held, outbox_done, outbox_ids, outbox_lanes, outbox_relays, outbox_controls, outbox_actions, outbox_settings, outbox_schema_version",
		fmt.Sprintf("CREATE SUBSCRIPTION upgrade CONNECTION 'host=%s port=%s user=rowrelay password=%s dbname=shop sslmode=disable' PUBLICATION everything", host, port, older.secret))
	eventually(t, "the tables were copied", func() bool {
		return is.number("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == 0
	})
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

	execute(is, "ALTER SUBSCRIPTION upgrade DISABLE", "ALTER SUBSCRIPTION upgrade SET (slot_name = NONE)", "DROP SUBSCRIPTION upgrade",
		"SELECT setval(pg_get_serial_sequence('outbox', 'id'), (SELECT max(id) FROM outbox_messages))")
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
