package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Relays are killed, and their connections to the broker are cut. Nothing is lost, and each
// customer's orders arrive in order. Each duplicate follows from a kill or from a lost response.
// With idempotent production no duplicates exist. With -long the scene also kills and restarts a
// broker of its own.
func TestKillsAndCutsLoseNothing(t *testing.T) {
	t.Parallel()
	targets := []string{"postgres15/pgx"}
	if *messages > 0 {
		targets = append(targets, "postgres18/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
	}
	for name, open := range map[string]func(*testing.T) (broker, []trouble){"kafka": cutKafka, "kafka, idempotent": cutExactKafka, "rabbitmq": cutRabbit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, target := range targets { // one after another, because they use the same address
				t.Run(target, func(t *testing.T) {
					to, troubles := open(t)
					survive(newScene(t, target), to, troubles)
				})
			}
		})
	}
}

func cutKafka(t *testing.T) (broker, []trouble) { return throughFront(t, "front") }

func cutExactKafka(t *testing.T) (broker, []trouble) {
	topic, troubles := throughFront(t, "front2")
	return idempotentTopic{topic}, troubles
}

// throughFront makes relays connect to Kafka through a proxy. One of the broker's listeners
// advertises the proxy's address.
func throughFront(t *testing.T, front string) (*kafkaTopic, []trouble) {
	e := environmentOf(t, "kafka")
	at := e.query(t, "ROWRELAY_TEST_KAFKA_LOGINS", front)
	topic := newKafkaTopic(t, e.asked(t, "ROWRELAY_TEST_KAFKA"), 1)
	topic.front = at.Get(front)
	topic.folder = at.Get("folder")
	between, node := newProxy(t, topic.front, at.Get("behind-"+front)), kafkaNodes(t, topic.folder, 1)
	if *long {
		t.Cleanup(func() { node.kill(1) }) // the script of the servers knows only the process that it started
	}
	return topic, befalling(topic, between, node)
}

func cutRabbit(t *testing.T) (broker, []trouble) {
	address := environmentOf(t, "rabbitmq").asked(t, "ROWRELAY_TEST_RABBITMQ")
	queue := newRabbitQueue(t, address, "classic")
	between := newProxy(t, "127.0.0.1:0", queue.hosts[0])
	queue.front = between.address()
	return queue, befalling(queue, between, rabbitNodes(t, address, 1))
}

// trouble is a failure that repeatedly happens to a broker.
type trouble struct {
	name   string
	every  time.Duration
	strike func(times int) // the argument times is the number of earlier failures
}

// befalling returns the troubles of a broker with one node.
func befalling(to broker, between *proxy, own nodes) []trouble {
	troubles := []trouble{{"cuts", 700 * time.Millisecond, func(int) { between.cut() }}}
	if !*long {
		return troubles // other tests share the node, so the scene may not kill it
	}
	restarts := own.fall(to)
	restarts.every = 15 * time.Second // leaves time to deliver messages between restarts
	return append(troubles, restarts)
}

// happen calls the function strike repeatedly until the channel done is closed, and returns the
// number of calls.
func (tr trouble) happen(done <-chan struct{}) (times int) {
	for {
		select {
		case <-done:
			return times
		case <-time.After(tr.every):
			tr.strike(times)
			times++
		}
	}
}

// faultKind returns the kind of a fault in a history, by the name of a trouble.
func faultKind(trouble string) string {
	switch trouble {
	case "cuts", "suspended nodes":
		return proof.BrokerCut
	case "killed nodes":
		return proof.BrokerKilled
	default:
		return strings.ReplaceAll(trouble, " ", "_")
	}
}

// load describes the messages that a scene writes for its relays.
type load struct {
	transactions, orders int // half of the transactions are rolled back
	over                 time.Duration
	batch                int
}

// theLoad is 5,000 messages, with -long 200,000, and with -messages the given number.
func theLoad() load {
	if *messages > 0 {
		return load{transactions: *messages / 50, orders: 100, over: pace(), batch: 200}
	}
	if *long {
		return load{transactions: 4_000, orders: 100, over: time.Minute, batch: 200}
	}
	return load{transactions: 2_000, orders: 5, over: 8 * time.Second, batch: killedBatch}
}

// survive writes orders while relays are killed and the troubles happen, and checks the arrived
// messages.
func survive(s *scene, to broker, troubles []trouble) {
	s.t.Helper()
	s.broker = to.product()
	l, under := theLoad(), sync.WaitGroup{}
	defer under.Wait()
	done, strikes := make(chan struct{}), make([]int, len(troubles))
	under.Go(func() {
		defer close(done)
		placeOrders(s, l.transactions, l.orders, l.over)
	})
	for i, tr := range troubles {
		strike := tr.strike
		tr.strike = func(times int) {
			fault(s.t, faultKind(tr.name), "")
			strike(times)
		}
		under.Go(func() { strikes[i] = tr.happen(done) })
	}
	kills := killEverySecond(s, to.sink, 3*time.Second, l.batch, done)
	under.Wait()
	s.t.Logf("%d kills, %s; %d messages delivered meanwhile", len(kills), told(troubles, strikes), s.status().Counts[storage.StateDone])
	s.settled()
	if s.Kind == testdb.Postgres {
		s.t.Logf("no delivery for %v at most", s.longestGap())
	}
	judgeBroker(s, to, slices.Concat(kills, s.lostLeases()), total(strikes), l.batch)
}

func told(troubles []trouble, strikes []int) string {
	var parts []string
	for i, tr := range troubles {
		parts = append(parts, fmt.Sprint(strikes[i], " ", tr.name))
	}
	return strings.Join(parts, ", ")
}

func total(strikes []int) (sum int) {
	for _, n := range strikes {
		sum += n
	}
	return sum
}

// longestGap returns the longest time without a delivery.
func (s *scene) longestGap() time.Duration {
	s.t.Helper()
	var seconds float64
	check(s.t, s.DB.QueryRow(`SELECT max(extract(epoch FROM gap))::float8
		FROM (SELECT finished_at - lag(finished_at) OVER (ORDER BY finished_at) AS gap FROM outbox_done) AS gaps`).Scan(&seconds))
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
}

// judgeBroker checks that all orders arrived in order. Each duplicate must follow from the death of
// a relay that had sent the message, or from an attempt that was charged because its response was
// lost. The numbers of kills, troubles and messages in flight limit the number of duplicates.
func judgeBroker(s *scene, to broker, kills []*kill, troubles, batch int) {
	s.t.Helper()
	arrivals := to.received()
	unsettled := mostUnsettled(batch) // the most unsettled messages of a relay
	v := judge(s.t, arrivals)
	if want := s.committed(); v.distinct != want {
		s.t.Errorf("%d distinct messages arrived of %d committed orders", v.distinct, want)
	}
	if _, exact := to.(idempotentTopic); exact && len(v.duplicates) > 0 {
		s.t.Errorf("%d messages are in the log twice, none should be", len(v.duplicates))
	}
	if parked := s.status().Counts[storage.StateError]; parked > 0 {
		s.t.Errorf("%d messages were parked", parked)
	}
	byKills, byAnswers := s.explained(arrivals, kills)
	if byKills > len(kills)*unsettled || byAnswers > 3*troubles*unsettled {
		s.t.Errorf("%d kills caused %d duplicates, and %d failures of the broker caused %d duplicates: more than were in flight", len(kills), byKills, troubles, byAnswers)
	}
	s.t.Logf("%d messages, %d duplicates: %d because of kills, %d because of lost responses", v.distinct, len(v.duplicates), byKills, byAnswers)
}

// explained counts the causes of duplicates, and finds duplicates without a cause. If the response
// of a batch is lost, only the first message of each key in the batch is charged an attempt. The
// key's other messages in the batch are sent again, too.
func (s *scene) explained(arrivals []arrival, kills []*kill) (byKills, byAnswers int) {
	s.t.Helper()
	charged, senders, room, last := s.charged(), sendersOf(arrivals), map[int]int{}, map[string]string{}
	for _, a := range arrivals {
		last[a.id] = a.from
	}
	for _, a := range firsts(arrivals) {
		again, dead := repetitions(senders[a.id], kills)
		byKills, byAnswers = byKills+dead, byAnswers+again-dead
		if again == 0 {
			room[a.customer] = 0
		}
		room[a.customer] += charged[a.id]
		if again-dead-s.lostTo(senders[a.id], last[a.id], kills) > room[a.customer] {
			s.t.Errorf("message %s arrived from %v: kills explain %d of the duplicates, and nothing explains the others", a.id, senders[a.id], dead)
		}
	}
	return byKills, byAnswers
}

// repetitions returns how often a message arrived again, and how many of these duplicates follow
// from the death of a relay that had sent the message.
func repetitions(senders map[string]int, kills []*kill) (again, dead int) {
	again = -1
	for sender, times := range senders {
		again += times
		if killOf(kills, sender) != nil {
			dead++
		}
	}
	return again, min(dead, len(senders)-1)
}

// lostTo counts the duplicates of a message that follow from lost responses in relays' logs,
// although the row has no charged attempt. Either a relay was killed before it could settle the
// message, or it released the message's lane to a newer relay while the message was suspended. If the relay leased
// the lane again later, it sent the message again as if for the first time.
func (s *scene) lostTo(senders map[string]int, last string, kills []*kill) (again int) {
	for i, p := range s.processes {
		times := senders[p.name]
		switch {
		case times == 0 || !strings.Contains(p.log.String(), "reason=unknown"):
		case killOf(kills, p.name) != nil:
			again += times - 1 // one arrival follows from the relay's death
		case p.name != last:
			again += times
		case i < len(s.processes)-1:
			again += times - 1
		}
	}
	return again
}

// sendersOf counts, for each message, how often it arrived from each relay.
func sendersOf(arrivals []arrival) map[string]map[string]int {
	senders := map[string]map[string]int{}
	for _, a := range arrivals {
		if senders[a.id] == nil {
			senders[a.id] = map[string]int{}
		}
		senders[a.id][a.from]++
	}
	return senders
}

// firsts returns the first arrival of each message.
func firsts(arrivals []arrival) (all []arrival) {
	seen := make(map[string]bool, len(arrivals))
	for _, a := range arrivals {
		if !seen[a.id] {
			all = append(all, a)
		}
		seen[a.id] = true
	}
	return all
}

// charged returns how many attempts each message was charged before its delivery. While a
// destination fails, a lost response charges no attempt, but its error is stored. charged adds
// three for such an error, because responses may be lost a few times.
func (s *scene) charged() map[string]int {
	s.t.Helper()
	rows, err := s.DB.Query("SELECT message_id, attempts - 1, COALESCE(last_error, '') FROM outbox_done WHERE attempts > 1 OR last_error LIKE 'unknown%' OR last_error LIKE 'timeout%'")
	check(s.t, err)
	defer rows.Close()
	charged, reasons := map[string]int{}, map[string]int{}
	for rows.Next() {
		var (
			id, problem string
			attempts    int
		)
		check(s.t, rows.Scan(&id, &attempts, &problem))
		charged[id] = attempts
		reason, _, _ := strings.Cut(problem, ":")
		if reason == "unknown" || reason == "timeout" {
			charged[id] += 3
		}
		reasons[reason] += attempts
	}
	check(s.t, rows.Err())
	s.t.Logf("number of charged attempts, by the reason of the message's last failure: %v", reasons)
	return charged
}
