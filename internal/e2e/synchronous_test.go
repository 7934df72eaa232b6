package e2e

import (
	"database/sql"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// newSynchronous returns a primary with a synchronous standby: no commit succeeds before the standby has received it. A crash kills
// the primary and promotes the standby. Clients reach it once it has a standby of its own: a new server, or with MariaDB the killed primary.
func newSynchronous(t *testing.T, server string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var primary, standby *own
	var follower func() *own // makes a standby of the primary, and waits until the primary's commits wait for it
	var promote func()       // makes the standby a primary
	switch kind := pairs[server]; kind {
	case testdb.Postgres:
		c.topology = "primary and synchronous standby"
		primary = newOwn(t, server, kind)
		primary.write("data/pg_hba.conf", "host all,replication all 127.0.0.1/32 scram-sha-256\n")
		primary.start()
		follower = func() *own {
			s := primary.standby(primary.address())
			s.start()
			primary.exec("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
			primary.eventually("the standby is synchronous", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'")
			return s
		}
		promote = func() { standby.exec("SELECT pg_promote()") }
	case testdb.MySQL:
		c.topology = "primary and semi-synchronous replica"
		primary = newOwn(t, server, kind, "--skip-log-bin")
		primary.start() // without a binary log, to create its user
		primary.signal(syscall.SIGTERM)
		primary.write("users.sql", "")
		servers := 0
		options := func() []string {
			servers++
			return append(binlog(kind), fmt.Sprint("--server-id=", servers), "--innodb-buffer-pool-size=128M", "--plugin-dir="+primary.plugins(),
				"--plugin-load-add=semisync_source.so;semisync_replica.so;mysql_clone.so", "--rpl-semi-sync-source-timeout=4294967295")
		}
		primary.options = options()
		primary.start()
		follower = func() *own {
			s := blank(t, kind, primary.words, primary.secret, options())
			s.write("users.sql", "")
			primary.exec("CLONE LOCAL DATA DIRECTORY = '" + s.data() + "'")
			s.start()
			s.exec("SET GLOBAL rpl_semi_sync_replica_enabled = 1")
			s.exec(s.follow(primary.address(), 0)...)
			primary.exec("SET GLOBAL rpl_semi_sync_source_enabled = 1")
			primary.eventually("the replica is semi-synchronous", "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Rpl_semi_sync_source_clients'")
			return s
		}
		promote = func() {
			standby.exec("STOP REPLICA IO_THREAD",
				"SELECT WAIT_FOR_EXECUTED_GTID_SET(received_transaction_set) FROM performance_schema.replication_connection_status", // it has received changes that it hasn't applied yet
				"STOP REPLICA", "RESET REPLICA ALL")
		}
	case testdb.MariaDB:
		c.topology = "primary and semi-synchronous replica"
		options := func(id int) []string { // with the last two, a killed primary that returns has lost the transactions that its replica has not received
			return append(binlog(kind), fmt.Sprint("--server-id=", id), "--innodb-buffer-pool-size=128M", "--log-slave-updates", "--gtid-strict-mode=ON",
				"--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=4294967295", "--rpl-semi-sync-slave-enabled=ON", "--init-rpl-role=SLAVE")
		}
		primary = newOwn(t, server, kind)
		primary.start() // without a binary log, to create its user
		primary.signal(syscall.SIGTERM)
		primary.write("users.sql", "")
		primary.options = options(1)
		spare := primary.copied(options(2)...)
		spare.write("users.sql", "")
		primary.start()
		follower = func() *own {
			s := spare
			s.start()
			s.exec(append([]string{"SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_binlog_pos"}, s.follow(primary.address(), 0)...)...)
			primary.exec("SET GLOBAL rpl_semi_sync_master_enabled = 1")
			primary.eventually("the replica is semi-synchronous", "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Rpl_semi_sync_master_clients'")
			return s
		}
		promote = func() {
			standby.exec("STOP SLAVE IO_THREAD")
			standby.eventually("the replica has applied what it has received", "SELECT MASTER_GTID_WAIT('"+standby.received()+"', 60) = 0")
			standby.exec("STOP SLAVE", "RESET SLAVE ALL")
			spare = primary
		}
	default:
		t.Fatalf("no synchronous standby of %s is written", server)
	}
	c.nodes = []*own{primary}
	standby = follower()
	front := newProxy(t, "127.0.0.1:0", primary.address())
	c.address = front.address()
	c.crash = func() {
		dead := primary
		front.redirect("127.0.0.1:1") // clients must not reach the killed primary when it returns
		dead.kill()
		promote()
		fault(t, proof.Failover, "")
		primary = standby
		standby = follower() // before clients reach the primary, because MySQL can't clone itself while commits wait for a replica
		front.redirect(primary.address())
		front.cut()
		if dead != standby {
			check(t, os.RemoveAll(dead.data()))
		}
	}
	return c
}

// received returns the position of the last transaction that a MariaDB replica has received. It may not have applied it yet.
func (s *own) received() (position string) {
	s.t.Helper()
	db := s.open(s.address(), "", "")
	defer db.Close()
	rows, err := db.QueryContext(s.t.Context(), "SHOW SLAVE STATUS")
	check(s.t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	check(s.t, err)
	values := make([]any, len(columns))
	for i, name := range columns {
		values[i] = new(sql.RawBytes)
		if name == "Gtid_IO_Pos" {
			values[i] = &position
		}
	}
	if !rows.Next() {
		s.t.Fatalf("the server is no replica: %v", rows.Err())
	}
	check(s.t, rows.Scan(values...))
	return position
}

// eventually waits until a query of one number finds 1.
func (s *own) eventually(what, query string) {
	s.t.Helper()
	db := s.open(s.address(), "", "")
	defer db.Close()
	eventually(s.t, what, func() bool {
		var n int
		return db.QueryRowContext(s.t.Context(), query).Scan(&n) == nil && n == 1
	})
}

// Primaries and relays are killed again and again. A synchronous standby has all commits, so no message may be lost or out of order.
func TestRepeatedFailoversKeepAllCommits(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	for _, server := range []string{"postgres15", "mariadb1011", "mysql"} {
		t.Run(server, func(t *testing.T) {
			c := newSynchronous(t, server)
			s := c.scene("synchronous")
			e := c.endure(s, use{}, 4*time.Second, *lastsFor)
			judgeCluster(c, s, e.received(), true)
		})
	}
}
