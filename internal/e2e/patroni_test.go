package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// patroni is three servers of PostgreSQL that Patroni manages. Their state is in etcd, and HAProxy's port leads to the
// leader.
type patroni struct {
	cluster
	programs    string // the folder of the programs
	ports       []int  // the ports of Patroni's REST API, by node
	synchronous bool   // Patroni's synchronous_mode
	crashes     int
}

// newPatroni starts the servers.
func newPatroni(t *testing.T, synchronous bool) *patroni {
	t.Helper()
	p := &patroni{programs: theMachine.asked(t, "ROWRELAY_TEST_PATRONI"), synchronous: synchronous}
	p.t, p.topology = t, "Patroni, three nodes, asynchronous"
	if synchronous {
		p.topology = "Patroni, three nodes, synchronous_mode"
	}
	postgres := wordsOf(t, "postgres15")
	for range 3 {
		p.nodes, p.ports = append(p.nodes, blank(t, testdb.Postgres, postgres, preparedSecret, nil)), append(p.ports, testdb.FreePort(t))
	}
	etcd := p.startEtcd()
	for i, node := range p.nodes {
		node.write("patroni.yml", patroniSettings(node, i, p.ports[i], etcd, synchronous))
		p.start(i)
		p.await(i, map[bool]string{true: "primary", false: "replica"}[i == 0])
	}
	p.awaitSuccessor()
	p.startHAProxy()
	p.cluster.crash = p.crash
	return p
}

// helper starts a program that serves the nodes, until the end of the test.
func (p *patroni) helper(name string, arguments ...string) {
	p.t.Helper()
	process, exited := p.nodes[0].launch(syscall.SIGKILL, filepath.Join(p.programs, name), arguments...)
	p.t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGKILL)
		<-exited
	})
}

func (p *patroni) startEtcd() (clients string) {
	clients = fmt.Sprint("127.0.0.1:", testdb.FreePort(p.t))
	peers := fmt.Sprint("http://127.0.0.1:", testdb.FreePort(p.t))
	p.helper("etcd", "--name=rowrelay", "--data-dir="+p.nodes[0].path("etcd"), "--listen-client-urls=http://"+clients, "--advertise-client-urls=http://"+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=rowrelay="+peers, "--log-level=error")
	return clients
}

// startHAProxy starts HAProxy with the settings that Patroni's documentation recommends.
func (p *patroni) startHAProxy() {
	p.address = fmt.Sprint("127.0.0.1:", testdb.FreePort(p.t))
	settings := `defaults
	mode tcp
	timeout connect 4s
	timeout client 30m
	timeout server 30m
	timeout check 5s
listen primary
	bind ` + p.address + `
	option httpchk OPTIONS /primary
	http-check expect status 200
	default-server inter 1s fall 3 rise 2 on-marked-down shutdown-sessions
`
	for i, node := range p.nodes {
		settings += fmt.Sprintf("\tserver node%d %s check port %d\n", i, node.address(), p.ports[i])
	}
	p.nodes[0].write("haproxy.cfg", settings)
	p.helper("haproxy", "-db", "-f", p.nodes[0].path("haproxy.cfg"))
	db := p.nodes[0].open(p.address, "", "")
	defer db.Close()
	db.SetMaxIdleConns(0)
	eventually(p.t, "HAProxy leads to the leader only", func() bool { // until its first checks, it leads to each node in turn
		for range p.nodes {
			var standby bool
			if err := db.QueryRowContext(p.t.Context(), "SELECT pg_is_in_recovery()").Scan(&standby); err != nil || standby {
				return false
			}
		}
		return true
	})
}

// patroniSettings returns Patroni's settings for a node. A leader that stops renewing its key is replaced after 20 seconds,
// the shortest time that Patroni allows, and a leader whose PostgreSQL has died is replaced as soon as possible.
func patroniSettings(node *own, number, port int, etcd string, synchronous bool) string {
	return fmt.Sprintf(`scope: rowrelay
name: node%d
restapi: {listen: '127.0.0.1:%d', connect_address: '127.0.0.1:%d'}
etcd3: {host: '%s'}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    master_start_timeout: 0
    synchronous_mode: %t
    postgresql:
      use_pg_rewind: true
      parameters: {max_connections: 100, shared_buffers: 64MB, fsync: 'off', wal_keep_size: 1GB, jit: 'off'}
  initdb: [encoding: UTF8, locale: C.UTF-8, no-sync]
postgresql:
  listen: 127.0.0.1:%d
  connect_address: 127.0.0.1:%d
  data_dir: %s
  bin_dir: %s
  pgpass: %s
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {username: rowrelay, password: %s}
    replication: {username: replicator, password: %s}
  parameters: {unix_socket_directories: ''}
  pg_hba: ['host all,replication all 127.0.0.1/32 scram-sha-256']
`, number, port, port, etcd, synchronous, node.port, node.port, node.data(), filepath.Dir(node.words[0]), node.path("pgpass"), node.secret, node.secret)
}

// start starts a node's Patroni, which starts PostgreSQL.
func (p *patroni) start(i int) {
	p.t.Helper()
	node := p.nodes[i]
	node.process, node.exited = node.launch(syscall.SIGTERM, filepath.Join(p.programs, "patroni"), node.path("patroni.yml"))
	p.t.Cleanup(func() {
		node.signal(syscall.SIGKILL)
		killPostgres(node)
	})
}

// killPostgres kills a node's PostgreSQL, but not its Patroni.
func killPostgres(node *own) {
	text, err := os.ReadFile(filepath.Join(node.data(), "postmaster.pid"))
	if err != nil {
		return // PostgreSQL isn't running
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if pid, err := strconv.Atoi(first); err == nil && pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// is reports whether a node has a role, by a path of Patroni's REST API.
func (p *patroni) is(i int, role string) bool {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", p.ports[i], role))
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// await waits until a node has the role.
func (p *patroni) await(i int, role string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("node %d is a %s", i, role), func() bool {
		if !isOpen(p.nodes[i].exited) {
			p.t.Fatalf("Patroni has ended:\n%s", p.nodes[i].said())
		}
		return p.is(i, role)
	})
}

// awaitSuccessor waits until a standby may become the leader. In synchronous_mode Patroni promotes only the standby that it has
// chosen as synchronous.
func (p *patroni) awaitSuccessor() {
	p.t.Helper()
	if p.synchronous {
		eventually(p.t, "a standby is synchronous", func() bool {
			return slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return p.is(i, "synchronous") })
		})
	}
}

// leader waits until one of the nodes is the leader, and returns its number.
func (p *patroni) leader() (leader int) {
	p.t.Helper()
	eventually(p.t, "a node is the leader", func() bool {
		leader = slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return p.is(i, "primary") })
		return leader >= 0
	})
	return leader
}

// crash kills the leader's PostgreSQL; or its Patroni, which leaves a PostgreSQL that accepts writes; or both. It waits until another
// node is the leader, and until the node that was killed is a standby again.
func (p *patroni) crash() {
	p.t.Helper()
	old := p.leader()
	withPostgres, withPatroni := p.crashes%3 != 1, p.crashes%3 != 0
	p.crashes++
	if withPatroni {
		p.nodes[old].signal(syscall.SIGKILL)
	}
	if withPostgres {
		fault(p.t, proof.DatabaseKilled, "")
		killPostgres(p.nodes[old])
	}
	began, leader := time.Now(), old
	eventually(p.t, "another node is the leader", func() bool {
		leader = p.leader()
		return leader != old
	})
	fault(p.t, proof.Failover, "")
	if withPatroni {
		p.start(old)
	}
	took := time.Since(began)
	p.await(old, "replica")
	p.awaitSuccessor()
	p.t.Logf("node %d lost its Patroni %t, its PostgreSQL %t; node %d led after %v, the old one followed after %v", old, withPatroni, withPostgres, leader,
		took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// The leader and relays are killed. No message that the database kept may be lost or out of order. With synchronous_mode, the database keeps all
// committed messages.
func TestPatroni(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with ROWRELAY_TEST_PATRONI=$(deploy/servers/servers words patroni)")
	}
	for _, mode := range []string{"synchronous", "asynchronous"} {
		t.Run(mode, func(t *testing.T) {
			p := newPatroni(t, mode == "synchronous")
			s := p.scene("patroni")
			e := p.endure(s, use{}, 4*time.Second, *lastsFor)
			judgeCluster(&p.cluster, s, e.received(), mode == "synchronous")
		})
	}
}
