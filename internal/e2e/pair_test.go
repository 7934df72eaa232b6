package e2e

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// pair is a primary and an asynchronous standby.
type pair struct {
	t                *testing.T
	primary, standby *own
	line             *proxy // the connection between standby and primary
	front            *proxy // the address at which clients reach the primary
}

// pairs has the servers that can form pairs, and their kinds.
var pairs = map[string]string{"postgres15": testdb.Postgres, "mariadb1011": testdb.MariaDB, "mysql": testdb.MySQL}

// newPair returns a pair. Its standby applies changes after the time lag, which is in whole
// seconds, and has the variables env in addition to the test's.
func newPair(t *testing.T, name string, lag time.Duration, env ...string) *pair {
	t.Helper()
	p := &pair{t: t}
	switch kind := pairs[name]; kind {
	case testdb.Postgres:
		p.primary = newOwn(t, name, kind)
		p.primary.write("data/pg_hba.conf", "host all,replication all 127.0.0.1/32 scram-sha-256\n")
		p.standby = p.primary.copied("-c", fmt.Sprintf("recovery_min_apply_delay=%d", lag.Milliseconds())) // some packages have no pg_basebackup
		p.line = newProxy(t, "127.0.0.1:0", p.primary.address())
		p.standby.write("data/standby.signal", "")
		p.standby.write("data/postgresql.auto.conf", "primary_conninfo = '"+p.primary.conninfo(p.line.address())+"'\n")
		p.primary.start()
		p.standby.env = env
		p.standby.start()
	default:
		p.primary = newOwn(t, name, kind, append(binlog(kind), "--server-id=1")...)
		p.standby = p.primary.copied(append(binlog(kind), "--server-id=2")...)
		p.line = newProxy(t, "127.0.0.1:0", p.primary.address())
		p.primary.start()
		p.standby.env = env
		p.standby.start()
		p.standby.exec(append(p.standby.follow(p.line.address(), lag), "SET GLOBAL read_only = 1")...)
	}
	p.front = newProxy(t, "127.0.0.1:0", p.primary.address())
	return p
}

func binlog(kind string) []string {
	options := []string{"--log-bin=binlog", "--binlog-format=ROW"}
	if kind == testdb.MySQL {
		options = append(options, "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
	}
	return options
}

// standby returns a standby of a PostgreSQL server, which must accept replication. The standby isn't started yet, and will reach the server at the address.
func (s *own) standby(address string, options ...string) *own {
	s.t.Helper()
	other := blank(s.t, s.kind, s.words, s.secret, options)
	other.run(other.beside("pg_basebackup"), "--pgdata="+other.data(), "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", s.conninfo(address))
	return other
}

// conninfo returns the connection string with which a standby reaches the PostgreSQL server at the address.
func (s *own) conninfo(address string) string {
	s.t.Helper()
	host, port, err := net.SplitHostPort(address)
	check(s.t, err)
	return fmt.Sprintf("host=%s port=%s user=rowrelay password=%s sslmode=disable", host, port, s.secret)
}

// follow returns the statements that make a MySQL or MariaDB server replicate the server at the address, and apply changes after the time lag.
func (s *own) follow(address string, lag time.Duration) []string {
	s.t.Helper()
	host, port, err := net.SplitHostPort(address)
	check(s.t, err)
	if s.kind == testdb.MariaDB {
		return []string{fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_PASSWORD='%s', MASTER_CONNECT_RETRY=1, MASTER_DELAY=%d, MASTER_USE_GTID=slave_pos",
			host, port, s.secret, int(lag.Seconds())), "START SLAVE"}
	}
	return []string{fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='root', SOURCE_PASSWORD='%s', SOURCE_CONNECT_RETRY=1, SOURCE_DELAY=%d, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
		host, port, s.secret, int(lag.Seconds())), "START REPLICA"}
}

// caughtUp waits until the standby has everything that the primary has committed.
func (p *pair) caughtUp() {
	p.t.Helper()
	token := strconv.FormatInt(time.Now().UnixNano(), 10)
	here := "rowrelay_pair"
	if p.primary.kind == testdb.Postgres {
		here = "public"
	} else {
		p.primary.exec("CREATE DATABASE IF NOT EXISTS rowrelay_pair")
	}
	p.primary.exec("CREATE TABLE " + here + ".caught_up_" + token + " (n int)")
	db := p.standby.open(p.standby.address(), "", "")
	eventually(p.t, "the standby has caught up", func() bool {
		_, err := db.ExecContext(p.t.Context(), "SELECT n FROM "+here+".caught_up_"+token)
		return err == nil
	})
}

// part cuts the standby off: later commits of the primary don't reach it.
func (p *pair) part() {
	p.line.redirect("127.0.0.1:1")
	p.line.cut()
}

// failOver kills the primary and promotes the standby. Clients then reach the standby at the
// address that was the primary's.
func (p *pair) failOver() {
	p.t.Helper()
	fault(p.t, proof.Failover, "")
	p.primary.signal(syscall.SIGKILL)
	switch p.standby.kind {
	case testdb.Postgres:
		p.standby.exec("SELECT pg_promote()")
	case testdb.MariaDB:
		p.standby.exec("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0")
	case testdb.MySQL:
		p.standby.exec("STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = 0")
	}
	p.front.redirect(p.standby.address())
	p.front.cut()
}

// scene creates a database on the pair. The scene's writers connect through front.
func (p *pair) scene(name string) *scene {
	p.t.Helper()
	s := p.primary.scene(p.front.address(), name, "")
	s.topology = "primary and asynchronous standby"
	return s
}
