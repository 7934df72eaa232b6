package e2e

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var partitionedFor = flag.Duration("partitioned", 2*time.Minute, "how long a relay's packets are dropped")

// partition is a fault of a relay's network.
type partition struct {
	name  string
	state condition
}

var partitions = []partition{{"to the server", cutToServer}, {"to the relay", cutToRelay}, {"both ways", cutBoth}}

// A relay loses its database, and no connection is closed: packets to the database, packets from the
// database, or both, are dropped. The relay stops sending before its lease ends, another relay takes
// over its lanes, and after the fault the relay soon has lanes again. Meanwhile all messages are
// delivered in order.
func TestRelayWithoutItsDatabase(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	t.Parallel()
	for _, name := range []string{"postgres15", "mysql", "mariadb1011"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withoutDatabase(partitionedServer(t, name))
		})
	}
}

func withoutDatabase(s *scene) {
	const lease = 15 * time.Second
	s.topology = "one server; packets between a relay and the server are dropped"
	n, e, database := newNetwork(s.t), newEndpoint(s.t), portIn(s.t, s.URL)
	options := []string{"--lease", lease.String(), "--batch", fmt.Sprint(killedBatch), "--workers", "2"}
	apart := n.relay(s, "/apart", e.URL+"/apart", options...)
	for _, name := range []string{"/other-1", "/other-2"} {
		s.relay(name, e.URL+name, options...)
	}
	written := s.placeOrdersUntil()
	for _, usual := range []condition{{}, slowWire} { // on a slow wire, the relay is in the middle of a transaction more often
		for _, fault := range partitions {
			s.partition(n, e, apart, fault, usual, database, lease)
		}
	}
	written()
	s.settled()
	judgePartitioned(s, e.received())
}

func (s *scene) partition(n *network, e *endpoint, apart *process, f partition, usual condition, port int, lease time.Duration) {
	s.t.Helper()
	n.set(usual, port)
	since := time.Now()
	eventually(s.t, "the relay has lanes and sends", func() bool {
		if !isOpen(apart.exited) {
			s.t.Fatalf("%s has ended: %s", apart.name, apart.log)
		}
		return len(s.owned(apart.command.Process.Pid)) > 5 && e.lastFrom(apart.name).After(since)
	})
	lanes := s.owned(apart.command.Process.Pid)
	fault(s.t, proof.DatabaseCut, apart.name)
	cut := time.Now()
	n.set(f.state, port)
	taken := s.untilTaken(lanes, cut, 3*time.Minute)
	<-time.After(time.Until(cut.Add(*partitionedFor)))
	last, healed := e.lastFrom(apart.name), time.Now()
	n.set(condition{}, port)
	eventually(s.t, "the relay sends again", func() bool { return e.lastFrom(apart.name).After(healed) })
	back := time.Since(healed)
	s.t.Logf("%s, %v before: the relay sent until %v after the cut, other relays had taken over its %d lanes after %v, and it sent again %v after the network was back",
		f.name, usual.delay, last.Sub(cut).Round(time.Millisecond), len(lanes), taken.Round(time.Millisecond), back.Round(time.Millisecond))
	if last.Sub(cut) > lease {
		s.t.Errorf("%s: the relay sent for %v without its database, longer than its lease of %v", f.name, last.Sub(cut), lease)
	}
	if taken > lease+10*time.Second { // MySQL keeps the locks of an interrupted transaction for 20 s
		s.t.Errorf("%s: other relays took over the relay's lanes only after %v", f.name, taken)
	}
	judgeReturn(s.t, f.name, back)
}

// judgeReturn checks that a relay has noticed that its network works again. TCP alone tries dead
// connections for a quarter of an hour, or for hours if they are idle.
func judgeReturn(t *testing.T, fault string, back time.Duration) {
	t.Helper()
	if back > 2*time.Minute {
		t.Errorf("%s: the relay sent again only %v after its network was back", fault, back)
	}
}

// A relay loses its broker, but not its database, and no connection is closed. It keeps its lanes,
// whose messages wait, and delivers them soon after the fault. No message is parked or lost, and each
// key keeps its order.
func TestRelayWithoutItsBroker(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (broker, int){
		"kafka": func(t *testing.T) (broker, int) {
			topic := newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA"), 1)
			return topic, portIn(t, "kafka://"+topic.brokers)
		},
		"kafka, idempotent": func(t *testing.T) (broker, int) {
			topic := newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA"), 1)
			return idempotentTopic{topic}, portIn(t, "kafka://"+topic.brokers)
		},
		"rabbitmq": func(t *testing.T) (broker, int) {
			queue := newRabbitQueue(t, theMachine.asked(t, "ROWRELAY_TEST_RABBITMQ"), "classic")
			return queue, portIn(t, "amqp://"+queue.hosts[0])
		},
		"http": func(t *testing.T) (broker, int) {
			e := newEndpoint(t)
			return httpBroker{e}, portIn(t, e.URL)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, port := open(t)
			withoutBroker(partitionedServer(t, "postgres15"), to, port)
		})
	}
}

// httpBroker is an endpoint as a scene's broker.
type httpBroker struct{ *endpoint }

func (h httpBroker) sink(from string) string { return h.URL + from }
func (h httpBroker) whole() error            { return nil }
func (h httpBroker) product() string         { return "" }

// partitionedServer returns a scene on a server of its own that accepts relays from other networks.
func partitionedServer(t *testing.T, name string) *scene {
	t.Helper()
	server := newOwn(t, name, pairs[name])
	if server.kind == testdb.Postgres {
		server.write("data/pg_hba.conf", "host all all all scram-sha-256\n")
	}
	server.start()
	return server.scene(server.address(), "partitioned", "")
}

func withoutBroker(s *scene, to broker, port int) {
	s.topology = "one server; packets between a relay and the broker are dropped"
	n := newNetwork(s.t)
	options := []string{"--batch", fmt.Sprint(killedBatch), "--workers", "2"}
	apart := n.relay(s, "/apart", to.sink("/apart"), options...)
	for _, name := range []string{"/other-1", "/other-2"} {
		s.relay(name, to.sink(name), options...)
	}
	written := s.placeOrdersUntil()
	marks := func(what string, since time.Time) {
		s.t.Helper()
		eventually(s.t, what, func() bool {
			if !isOpen(apart.exited) {
				s.t.Fatalf("%s has ended: %s", apart.name, apart.log)
			}
			return s.lastMark(apart).After(since)
		})
	}
	for _, usual := range []condition{{}, slowWire} {
		for _, f := range partitions {
			n.set(usual, port)
			marks("the relay delivers", s.now())
			fault(s.t, proof.BrokerCut, apart.name)
			n.set(f.state, port)
			cut := s.now()
			<-time.After(*partitionedFor)
			last, healed := s.lastMark(apart), s.now()
			n.set(condition{}, port)
			marks("the relay delivers again", healed)
			back := s.lastMark(apart).Sub(healed)
			s.t.Logf("%s, %v before: the relay delivered until %v after the cut, and again %v after the network was back",
				f.name, usual.delay, last.Sub(cut).Round(time.Millisecond), back.Round(time.Millisecond))
			judgeReturn(s.t, f.name, back)
		}
	}
	written()
	s.settled()
	judgePartitioned(s, to.received())
}

// lastMark returns when the relay's last delivery was marked, by the database's clock.
func (s *scene) lastMark(p *process) time.Time {
	s.t.Helper()
	var last sql.NullTime
	check(s.t, s.DB.QueryRowContext(s.t.Context(), fmt.Sprintf("SELECT max(finished_at) FROM outbox_done WHERE relay LIKE '%%-%d-%%'", p.command.Process.Pid)).Scan(&last))
	return last.Time
}

// lastFrom returns when a relay's last message arrived.
func (e *endpoint) lastFrom(relay string) (last time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range slices.Backward(e.arrivals) {
		if a.from == relay {
			return a.at
		}
	}
	return last
}

// placeOrdersUntil writes orders, as [placeOrders] does, until the returned function is called, which
// waits for the writers.
func (s *scene) placeOrdersUntil() (stop func()) {
	const writers, customers, orders = 8, 80, 4
	done, running := make(chan struct{}), sync.WaitGroup{}
	for w := range writers {
		running.Go(func() {
			customer := func() int { return w + writers*rand.IntN(customers/writers) }
			for n := 0; isOpen(done); n++ {
				if err := s.orders(context.Background(), orders, customer, n*orders+1, n%2 == 0); err != nil {
					s.t.Errorf("write orders: %v", err)
					return
				}
				<-time.After(100 * time.Millisecond)
			}
		})
	}
	return func() { close(done); running.Wait() }
}

func portIn(t testing.TB, address string) int {
	t.Helper()
	u, err := url.Parse(address)
	check(t, err)
	port, err := strconv.Atoi(u.Port())
	check(t, err)
	return port
}

func judgePartitioned(s *scene, arrivals []arrival) {
	s.t.Helper()
	v := judge(s.t, arrivals)
	if want := s.committed(); v.distinct != want {
		s.t.Errorf("%d distinct messages arrived of %d committed orders", v.distinct, want)
	}
	if parked := s.status().Counts[storage.StateError]; parked > 0 {
		s.t.Errorf("%d messages were parked", parked)
	}
	s.t.Logf("%d messages, %d duplicates", v.distinct, len(v.duplicates))
}
