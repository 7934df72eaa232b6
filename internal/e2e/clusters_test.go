package e2e

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var lastsFor = flag.Duration("clusters-last", 40*time.Second, "how long each scene kills the nodes of its cluster")

// cluster is three servers with the same data, each of which can take over.
type cluster struct {
	t        *testing.T
	topology string
	nodes    []*own
	address  string   // leads to one node
	crash    func()   // kills the node to which address leads, waits until address leads to another one, and restarts the killed node
	promised sync.Map // the ids of messages whose commit succeeded
}

// behindProxy makes a proxy the cluster's address. It follows the node whose number elected returns
// after the death of another one. The function rejoin starts a killed node, and waits until it has all data.
func (c *cluster) behindProxy(elected func(dead int) int, rejoin func(*own)) {
	now, front := 0, newProxy(c.t, "127.0.0.1:0", c.nodes[0].address())
	c.address = front.address()
	c.crash = func() {
		dead := now
		c.nodes[dead].kill()
		now = elected(dead)
		fault(c.t, proof.Failover, "")
		front.redirect(c.nodes[now].address())
		front.cut()
		rejoin(c.nodes[dead])
	}
}

// use says which nodes writers and relays connect to: all of them, or the one behind the cluster's address.
type use struct{ writersOnAll, relaysOnAll bool }

// endure writes orders while nodes and relays are killed, and returns the
// endpoint. A customer's orders come from one writer, one transaction after another.
func (c *cluster) endure(s *scene, u use, every, lasts time.Duration, more ...string) *endpoint {
	t, e := c.t, newEndpoint(c.t)
	var pools []*sql.DB
	for _, n := range c.nodes {
		pools = append(pools, n.open(n.address(), s.Name, ""))
	}
	done, writers, failed := make(chan struct{}), sync.WaitGroup{}, atomic.Int64{}
	for w := range 8 {
		writers.Go(func() {
			for n := 1; isOpen(done); n++ {
				on := clusterWriter{s, s.DB, &c.promised}
				if u.writersOnAll {
					on.db = pools[(w+n)%len(pools)]
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				if err := on.placed(ctx, w+8*rand.IntN(10), n, n%4 != 0); err != nil {
					failed.Add(1)
					<-time.After(50 * time.Millisecond)
				}
				cancel()
				<-time.After(5 * time.Millisecond)
			}
		})
	}
	stop := sync.OnceFunc(func() { close(done) })
	defer writers.Wait()
	defer stop()
	kills := 0
	var relays [3]*process
	started := 0
	start := func(i int) {
		started++
		path, at := fmt.Sprint("/relay-", started), c.address
		if u.relaysOnAll {
			at = c.nodes[i].address()
		}
		arguments := append([]string{"run", "--database", c.nodes[0].url(at, s.Name), "--sink", e.URL + path,
			"--lease", "5s", "--batch", fmt.Sprint(killedBatch), "--workers", "2"}, more...)
		relays[i] = s.start(path, arguments...)
	}
	restart := func() { // restarts the relays that have ended because the database failed while they started
		for i := range relays {
			if relays[i] == nil || !isOpen(relays[i].exited) {
				start(i)
			}
		}
	}
	restart()
	times := 0
	for began := time.Now(); time.Since(began) < lasts; times++ {
		for range 2 {
			<-time.After(every / 2)
			i := rand.IntN(len(relays))
			relays[i].kill()
			kills++
			start(i)
		}
		before := len(e.received())
		eventually(t, "more messages arrive", func() bool {
			restart()
			return len(e.received()) > before
		})
		c.crash()
	}
	stop()
	writers.Wait()
	if !comesTrue(patience(), func() bool {
		restart()
		status, err := s.store.Status(t.Context())
		return err == nil && isSettled(status)
	}) {
		t.Error("not all messages are delivered")
	}
	t.Logf("%d nodes and %d relays were killed; %d transactions failed", times, kills, failed.Load())
	return e
}

// clusterWriter writes a scene's orders through one node.
type clusterWriter struct {
	*scene
	db       *sql.DB
	promised *sync.Map
}

func (w clusterWriter) placed(ctx context.Context, customer, number int, commit bool) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	message := orderMessage("orders", customer, number)
	if err := w.writeMessage(ctx, tx, customer, number, message); err != nil || !commit {
		w.wrote(false, err, message)
		return err
	}
	err = tx.Commit()
	w.wrote(true, err, message)
	if err == nil {
		w.promised.Store(message.ID, true)
	}
	return err
}

// figures are what a cluster's scene counts: messages that the cluster has, how many of them never arrived, how many messages
// arrived that the cluster lacks, how many committed messages it lacks, and so on.
type figures struct{ kept, lost, foreign, undone, reordered, duplicates, parked int }

// counts compares the arrived messages with those that the cluster has.
func (c *cluster) counts(s *scene, arrivals []arrival) (f figures) {
	s.t.Helper()
	kept := s.ids()
	f.kept = s.committed()
	seen, last := map[string]bool{}, map[int]int{}
	for _, a := range arrivals {
		if seen[a.id] {
			f.duplicates++
			continue
		}
		seen[a.id] = true
		if kept[a.id] && a.number <= last[a.customer] {
			f.reordered++
		}
		last[a.customer] = max(last[a.customer], a.number)
		if !kept[a.id] {
			f.foreign++
		}
	}
	for id := range kept {
		if !seen[id] {
			f.lost++
		}
	}
	c.promised.Range(func(id, _ any) bool {
		if !kept[id.(string)] {
			f.undone++
		}
		return true
	})
	f.parked = int(s.status().Counts[storage.StateError])
	return f
}

// newGalera returns three nodes of Galera with additional options.
func newGalera(t *testing.T, more ...string) *cluster {
	library := theMachine.asked(t, "ROWRELAY_TEST_GALERA")
	c := &cluster{t: t, topology: "Galera, three nodes"}
	ports := [3]int{testdb.FreePort(t), testdb.FreePort(t), testdb.FreePort(t)}
	var members []string
	for _, port := range ports {
		members = append(members, fmt.Sprint("127.0.0.1:", port))
	}
	options := func(n int) []string {
		return append([]string{"--innodb-buffer-pool-size=128M", "--server-id=" + strconv.Itoa(n+1), "--log-bin=binlog", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
			"--wsrep-on=ON", "--wsrep-provider=" + library, "--wsrep-cluster-name=rowrelay", "--wsrep-cluster-address=gcomm://" + strings.Join(members, ","),
			"--wsrep-node-address=" + members[n], "--wsrep-node-name=node" + strconv.Itoa(n), "--wsrep-sst-method=increments", "--wsrep-slave-threads=2",
			fmt.Sprintf("--wsrep-provider-options=base_port=%d;gmcast.listen_addr=tcp://%s;ist.recv_addr=127.0.0.1:%d;gcache.size=512M", ports[n], members[n], testdb.FreePort(t)),
		}, more...)
	}
	first := newOwn(t, "mariadb1011", testdb.MariaDB)
	first.start() // alone, to create its user
	first.signal(syscall.SIGTERM)
	first.write("wsrep_sst_increments", galeraTransfer)
	check(t, os.Chmod(first.path("wsrep_sst_increments"), 0o755))
	t.Setenv("PATH", first.folder+":"+os.Getenv("PATH"))
	first.write("users.sql", "")
	first.options = append(options(0), "--wsrep-new-cluster")
	first.start() // as a cluster of one node, so that copies of its data know the cluster
	c.synced(first)
	first.signal(syscall.SIGTERM)
	c.nodes = []*own{first, first.copied(options(1)...), first.copied(options(2)...)}
	for _, node := range c.nodes {
		node.write("users.sql", "")
		node.start()
		c.synced(node)
	}
	first.options = options(0)
	c.behindProxy(func(dead int) int { return (dead + 1) % len(c.nodes) }, func(node *own) {
		for attempts := 0; ; attempts++ { // a node ends if its donor leaves the cluster at this moment
			node.options = slices.DeleteFunc(node.options, func(o string) bool { return strings.HasPrefix(o, "--wsrep-start-position=") })
			node.options = append(node.options, "--wsrep-start-position="+recoveredPosition(node))
			if node.starts() && c.syncs(node) {
				return
			}
			if attempts == 10 {
				t.Fatalf("the node does not join:\n%s", node.said())
			}
		}
	})
	return c
}

// galeraTransfer is the program that Galera runs on both sides of a transfer. It refuses to copy
// all data. It only reports that a donor has all changes that the other node lacks; Galera then
// transfers these changes itself.
const galeraTransfer = `#!/bin/bash
here=$(dirname "$0")
while [[ $# -gt 0 ]]; do
	case $1 in
	--role) role=$2 && shift ;;
	--address) address=$2 && shift ;;
	--gtid) gtid=$2 && shift ;;
	--parent) parent=$2 && shift ;;
	--bypass) bypass=yes ;;
	esac
	shift
done
file=$here/transfer-${address//[^0-9]/-}
case $role in
joiner)
	rm -f "$file"
	echo "ready $address"
	until [[ -s $file ]]; do kill -0 "$parent" && sleep 0.1 || exit 1; done # the server may have ended
	cat "$file"
	;;
donor)
	[[ -n $bypass ]] || exit 1
	echo "$gtid" >"$file.new" && mv "$file.new" "$file"
	echo "done $gtid"
	;;
esac
`

// recoveredPosition returns the last transaction that a killed node has kept.
func recoveredPosition(node *own) string {
	node.t.Helper()
	log := node.path("recovery.err")
	node.run(node.words[0], append(append(slices.Clone(node.words[1:]), node.arguments()...), "--log-error="+log, "--wsrep-recover")...)
	text, err := os.ReadFile(log)
	check(node.t, err)
	_, position, found := strings.Cut(string(text), "Recovered position: ")
	if !found {
		node.t.Fatalf("no position was recovered:\n%s", text)
	}
	position, _, _ = strings.Cut(position, "\n")
	return strings.TrimSpace(position)
}

// synced waits until a node takes part in the cluster and has all data.
func (c *cluster) synced(node *own) {
	c.t.Helper()
	if !c.syncs(node) {
		c.t.Fatalf("the node has ended:\n%s", node.said())
	}
}

// syncs waits until a node takes part in the cluster and has all data, or has ended. It reports whether the node takes part.
func (c *cluster) syncs(node *own) (synced bool) {
	c.t.Helper()
	db := node.open(node.address(), "", "")
	defer db.Close()
	eventually(c.t, "the node is synced", func() bool {
		var name, value string
		err := db.QueryRow("SHOW STATUS LIKE 'wsrep_local_state_comment'").Scan(&name, &value)
		synced = isOpen(node.exited) && err == nil && value == "Synced"
		return synced || !isOpen(node.exited)
	})
	return synced
}

// scene creates a database on the cluster.
func (c *cluster) scene(name string) *scene {
	c.t.Helper()
	s := c.nodes[0].scene(c.address, name, "")
	s.topology = c.topology
	return s
}

// Nodes and relays are killed. No message may be lost, wherever writers and relays connect. The order must be kept if
// all of them use the same node; the other scenes only count the messages that arrived out of order.
func TestGalera(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with ROWRELAY_TEST_GALERA=$(deploy/servers/servers words galera)")
	}
	for _, test := range []struct {
		name string
		use
		options []string
	}{
		{"one node", use{}, []string{"--wsrep-sync-wait=7"}}, // see TestGaleraNodeThatLagsTakesOver
		{"writers on all nodes", use{writersOnAll: true}, nil},
		{"relays on all nodes", use{relaysOnAll: true}, nil},
		{"all on all nodes", use{writersOnAll: true, relaysOnAll: true}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newGalera(t, test.options...)
			c.topology += ", " + test.name
			s := c.scene("galera")
			e := c.endure(s, test.use, 8*time.Second, *lastsFor, "--longest-transaction", "5s")
			f := c.counts(s, e.received())
			if test.use == (use{}) {
				judge(t, e.received())
			} else {
				tally(t, e.received())
			}
			t.Logf("%s: %+v", test.name, f)
			if f.lost > 0 || f.parked > 0 {
				t.Errorf("%d messages that the cluster has never arrived, %d are parked", f.lost, f.parked)
			}
		})
	}
}

// judgeCluster checks that all messages that the cluster has arrived in order. If the cluster promises to keep all committed
// transactions, judgeCluster also checks this.
func judgeCluster(c *cluster, s *scene, arrivals []arrival, keeps bool) {
	c.t.Helper()
	keep(c.t, arrivals, true)
	f := c.counts(s, arrivals)
	c.t.Logf("%s: %+v", c.topology, f)
	if f.lost > 0 || f.parked > 0 || f.reordered > 0 {
		c.t.Errorf("%d messages that the cluster has never arrived, %d are parked, %d arrived out of order", f.lost, f.parked, f.reordered)
	}
	if keeps && f.undone > 0 {
		c.t.Errorf("the cluster has lost %d committed messages", f.undone)
	}
}
