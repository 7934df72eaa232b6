package e2e

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

var rounds = flag.Int("rounds", 1, "how often to run the scenes in which a server loses the commits of its last second")

// eachRound runs a test several times.
func eachRound(t *testing.T, test func(t *testing.T)) {
	for n := range *rounds {
		t.Run(fmt.Sprint("round ", n+1), test)
	}
}

// gate is a sink that a test can close. A closed gate refuses messages or keeps them waiting.
type gate struct {
	slow bool

	mu       sync.Mutex
	opened   chan struct{} // closed while the gate is open
	reached  chan struct{} // closed when the closed gate has stopped the first message
	arrivals []arrival
}

func newGate(slow bool) *gate {
	g := &gate{slow: slow, opened: make(chan struct{})}
	close(g.opened)
	return g
}

// shut closes the gate. The returned channel is closed when the first message reaches the gate.
func (g *gate) shut() (reached <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened, g.reached = make(chan struct{}), make(chan struct{})
	return g.reached
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.opened)
}

func (g *gate) knock() (opened chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if isOpen(g.opened) && isOpen(g.reached) {
		close(g.reached)
	}
	return g.opened
}

func (g *gate) Open(context.Context) error {
	if opened := g.knock(); !g.slow && isOpen(opened) {
		return errors.New("the gate is shut")
	}
	return nil
}

func (*gate) Close(context.Context) error { return nil }

// Order implements sinks.Ordered.
func (*gate) Order() sinks.Order { return sinks.OrderAtomic }

func (g *gate) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	opened := g.knock()
	outcomes := make([]sinks.Outcome, len(batch))
	if isOpen(opened) && !g.slow {
		for i := range outcomes {
			outcomes[i] = sinks.Outcome{Result: sinks.Unavailable, Reason: sinks.ReasonConnection}
		}
		return outcomes
	}
	select {
	case <-opened:
	case <-ctx.Done():
		for i := range outcomes {
			outcomes[i] = sinks.Outcome{Result: sinks.Unsent, Reason: sinks.ReasonCancelled}
		}
		return outcomes
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, m := range batch {
		var a arrival
		if _, err := fmt.Sscanf(string(m.Payload), `{"customer":%d,"number":%d}`, &a.customer, &a.number); err != nil {
			outcomes[i] = sinks.Outcome{Result: sinks.Reject, Reason: sinks.ReasonInvalid}
			continue
		}
		a.sink, a.id, a.at = "handler", m.ID, time.Now()
		g.arrivals, outcomes[i] = append(g.arrivals, a), sinks.Ok("")
	}
	return outcomes
}

func (g *gate) received() []arrival {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.arrivals)
}

// embedded is a relay in the test's process.
type embedded struct {
	log     tail
	stopped chan struct{}
	err     error // the error of Run, once it has returned
}

// embed starts a relay on a store. The relay stops at the end of the test.
func (s *scene) embed(store storage.Store, claim storage.Claim, lease time.Duration, sink sinks.Sink) *embedded {
	s.t.Helper()
	s.embeds = claim
	e := &embedded{stopped: make(chan struct{})}
	r, err := relay.New(store, relay.Options{
		Claim: claim, Lease: lease, Logger: slog.New(slog.NewTextHandler(&e.log, nil)),
		Sinks: map[string]relay.SinkOptions{"gate": {Sink: sink, Timeout: 2 * time.Minute, BreakerBackoff: relay.Backoff{Min: 100 * time.Millisecond, Max: 200 * time.Millisecond}}},
	})
	check(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { e.err = r.Run(ctx); close(e.stopped) }()
	s.t.Cleanup(func() {
		cancel()
		r.Abort()
		<-e.stopped
		if s.t.Failed() {
			s.t.Logf("the relay of %s ended with %v; its output:\n%s", s.Name, e.err, &e.log)
		}
	})
	return e
}

// opens opens the scene's table as a relay does.
func (s *scene) opens(db *sql.DB) *sqlstore.Store {
	s.t.Helper()
	d, err := dialect.ByName(s.Kind)
	check(s.t, err)
	store, err := sqlstore.Open(s.t.Context(), db, d, sqlstore.Options{})
	check(s.t, err)
	return store
}

// comesTrue waits for a condition, and reports whether it became true.
func comesTrue(within time.Duration, condition func() bool) bool {
	for end := time.Now().Add(within); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}

// idle waits until no message is left that could be delivered. The server may be down meanwhile.
func (s *scene) idle(within time.Duration) bool {
	return comesTrue(within, func() bool {
		status, err := s.store.Status(s.t.Context())
		return err == nil && isSettled(status)
	})
}

// ids returns the ids of all messages in the table, in any state.
func (s *scene) ids() map[string]bool {
	s.t.Helper()
	rows, err := s.DB.QueryContext(s.t.Context(), "SELECT message_id FROM outbox_messages")
	check(s.t, err)
	defer rows.Close()
	ids := map[string]bool{}
	for rows.Next() {
		var id string
		check(s.t, rows.Scan(&id))
		ids[id] = true
	}
	check(s.t, rows.Err())
	return ids
}

// highest returns the highest id of a pending message; 0 if none is pending.
func (s *scene) highest() (id int) {
	s.t.Helper()
	check(s.t, s.DB.QueryRowContext(s.t.Context(), "SELECT coalesce(max(id), 0) FROM outbox").Scan(&id))
	return id
}

// claimed counts the rows that a relay has claimed.
func (s *scene) claimed() (n int) {
	s.t.Helper()
	check(s.t, s.DB.QueryRowContext(s.t.Context(), "SELECT count(*) FROM outbox WHERE claim_token IS NOT NULL").Scan(&n))
	return n
}

// insist calls the function work until it succeeds, because a server may be down meanwhile.
func (s *scene) insist(what string, work func() error) {
	s.t.Helper()
	var err error
	if !comesTrue(patience(), func() bool { err = work(); return err == nil }) {
		s.t.Fatalf("%s: %v", what, err)
	}
}

const againCustomers = 20

// writeAgain writes orders in one transaction, and returns their first and last id. The id decides
// the customer, so an id that is assigned again has the same customer.
func (s *scene) writeAgain(count, number int) (first, last int) {
	s.t.Helper()
	s.insist("learn the next id", func() (err error) { first, err = s.nextID(number); return err })
	n := first
	customer := func() int { n++; return (n - 1) % againCustomers }
	s.insist("write messages", func() error { return s.orders(s.t.Context(), count, customer, number+1, true) })
	if last = s.highest(); last != first+count-1 {
		s.t.Fatalf("%d messages have the ids %d to %d", count, first, last)
	}
	return first, last
}

// nextID returns the id of the next message. To find this id, nextID uses up the id before it.
func (s *scene) nextID(number int) (int, error) {
	tx, err := s.DB.BeginTx(s.t.Context(), nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if err := s.write(s.t.Context(), tx, "orders", 0, number); err != nil {
		return 0, err
	}
	var id int
	err = tx.QueryRowContext(s.t.Context(), "SELECT max(id) FROM outbox").Scan(&id)
	return id + 1, err
}

// loser is a server that loses its latest commits and then assigns the ids of those commits again.
type loser struct {
	server *own
	at     string
	lease  time.Duration // the relays' lease
	scene  func(name string) *scene
	relays string // settings of the relays' sessions
	ready  func() // makes sure that the server keeps all earlier commits
	lose   func() // makes the server lose the commits since the call of ready
}

// failing returns a pair of servers that fails over.
func failing(t *testing.T, name string) loser {
	p := newPair(t, name, 0)
	return loser{server: p.primary, at: p.front.address(), lease: 15 * time.Second, scene: p.scene, lose: p.failOver, ready: func() { p.caughtUp(); p.part() }}
}

// crashing returns a server on which neither producers' nor relays' commits wait for the disk. To
// make the lost commits predictable, ready stops the process that writes commits to the disk, as if
// the disk were slow, and lose kills it. The server then recovers, as it does after the crash of
// any of its processes. (InnoDB has no such process: TestPowerLoss loses its commits.)
func crashing(t *testing.T) loser {
	s := newOwn(t, "postgres15", testdb.Postgres, "-c", "wal_buffers=64MB")
	s.start()
	db, writer := s.open(s.address(), "", ""), 0
	const unsafe = "-c synchronous_commit=off"
	return loser{server: s, at: s.address(), lease: 15 * time.Second, relays: unsafe,
		scene: func(name string) *scene { return s.scene(s.address(), name, unsafe) },
		ready: func() {
			s.exec("CHECKPOINT")
			check(t, db.QueryRowContext(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&writer))
			check(t, syscall.Kill(writer, syscall.SIGSTOP))
		},
		lose: func() {
			fault(t, proof.DatabaseCrashed, "")
			check(t, syscall.Kill(writer, syscall.SIGKILL))
			eventually(t, "the server has recovered", func() bool {
				var now int
				err := db.QueryRowContext(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&now)
				return err == nil && now != writer
			})
		},
	}
}

// shop is a table whose relay has messages in memory when its server loses them.
type shop struct {
	*scene
	claim   storage.Claim
	gate    *gate
	highest int // the highest id of the lost messages
	lost    map[string]bool
}

// A relay has messages in memory that its sink doesn't accept. The server loses these messages, and
// assigns their ids to other messages. When the sink accepts messages again, the other messages arrive
// in order.
func idsComeAgain(t *testing.T, from loser, lost, others int) {
	t.Helper()
	var shops []*shop
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, slow := range []bool{false, true} {
			s := &shop{scene: from.scene(fmt.Sprintf("by_%s_%s", claim, map[bool]string{false: "down", true: "slow"}[slow])), claim: claim, gate: newGate(slow)}
			shops = append(shops, s)
			s.embed(s.opens(from.server.open(from.at, s.Name, from.relays)), claim, from.lease, s.gate)
			check(t, s.orders(t.Context(), 50, func() int { return 1 }, 1, true))
			s.settled()
		}
	}
	from.ready()
	for _, s := range shops {
		reached := s.gate.shut()
		_, s.highest = s.writeAgain(lost, 1000)
		select {
		case <-reached:
		case <-time.After(patience()):
			t.Fatalf("%s: nothing has reached the gate", s.Name)
		}
		s.lost = s.ids()
	}
	from.lose()
	again := 0
	for _, s := range shops {
		first, last := s.writeAgain(others, 2000)
		again = max(again, min(last, s.highest)-first+1)
	}
	for _, s := range shops {
		if s.claim == storage.ByRows && s.gate.slow { // the relay doesn't know that the sink is down, and claims messages
			comesTrue(10*time.Second, func() bool { return s.claimed() > others*4/5 })
		}
		s.gate.open()
	}
	if again < min(lost, others)*4/5 {
		t.Errorf("the scene shows nothing: only %d ids were assigned again", again)
	}
	for _, s := range shops {
		s.judgeKept()
	}
}

// judgeKept checks that all messages that the server has kept arrived in order.
func (s *shop) judgeKept() {
	s.t.Helper()
	idle := s.idle(patience())
	kept, arrived := s.ids(), map[string]bool{}
	var theirs []arrival
	for _, a := range s.gate.received() {
		if kept[a.id] {
			theirs = append(theirs, a)
			arrived[a.id] = true
		}
	}
	name, lost := s.Name, 0
	for id := range kept {
		if s.lost[id] {
			delete(s.lost, id)
		}
		if !arrived[id] {
			lost++
		}
	}
	s.t.Logf("%s: the server lost %d messages and kept %d, of which %d never arrived", name, len(s.lost), len(kept), lost)
	if lost > 0 {
		s.t.Errorf("%s: %d messages that are in the table never arrived", name, lost)
	}
	if !idle {
		s.t.Errorf("%s: messages wait though the sink is back: %v", name, s.status().Counts)
	}
	if want := s.committed(); len(kept) != want {
		s.t.Errorf("%s: the table has %d messages of %d orders", name, len(kept), want)
	}
	if s.claim == storage.ByLanes {
		judge(s.t, theirs)
	} else {
		tally(s.t, theirs)
	}
}

// An asynchronous standby replaces its primary, and assigns again the ids of messages that were not
// replicated to it.
func TestFailoverLosesNoMessageThatTheNewPrimaryHas(t *testing.T) {
	t.Parallel()
	for _, name := range drawn("postgres15", "mysql", "mariadb1011") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachRound(t, func(t *testing.T) { idsComeAgain(t, failing(t, name), 400, 300) })
		})
	}
}

// A server recovers from a crash of one of its processes, and loses commits that did not wait for
// the disk.
func TestCrashRecoveryLosesNoMessageThatTheServerHas(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ lost, others int }{{400, 300}, {20, 120}} { // with 120, the relay may not see that the highest id has fallen
		t.Run(fmt.Sprint(size.lost, " lost"), func(t *testing.T) {
			t.Parallel()
			eachRound(t, func(t *testing.T) { idsComeAgain(t, crashing(t), size.lost, size.others) })
		})
	}
}

// A server that has restarted may have lost commits. So its pages and heartbeats have another epoch, even if it restarts within
// a moment.
func TestRestartedServerHasAnotherEpoch(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"postgres15": testdb.Postgres, "mysql": testdb.MySQL, "mariadb1011": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newOwn(t, name, kind)
			server.start()
			s := server.scene(server.address(), "shop", "")
			store := s.opens(s.DB)
			epochs := func() (page, beat string) { // on PostgreSQL, the first heartbeat after a restart begins an epoch
				s.insist("send a heartbeat", func() error {
					members, err := store.Heartbeat(t.Context(), storage.Identity{Name: "one", Claim: storage.ByLanes}, time.Minute)
					beat = members.Epoch
					return err
				})
				s.insist("read a page", func() error {
					read, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 0}}, Limit: 10, MaxBytes: 1 << 20})
					page = read.Epoch
					return err
				})
				if page != beat || page == "" {
					t.Errorf("a page has the epoch %q, and a heartbeat has %q", page, beat)
				}
				return page, beat
			}
			seen := map[string]bool{}
			for range 2 { // a single restart leaves MySQL's and MariaDB's epoch unchanged once in 16,384 times
				before, _ := epochs()
				if again, _ := epochs(); again != before {
					t.Errorf("without a restart the epoch changes from %q to %q", before, again)
				}
				seen[before] = true
				server.signal(server.end())
				server.start()
			}
			last, _ := epochs()
			if seen[last] = true; len(seen) == 1 {
				t.Errorf("two restarts didn't change the epoch %q", last)
			}
		})
	}
}

// A relay opens the table on one server, and its first read reaches another server. The other
// server's ids are lower, even those that it assigns after the read.
func TestServerThatChangesBetweenOpenAndTheFirstRead(t *testing.T) {
	t.Parallel()
	for _, name := range drawn("postgres15", "mysql", "mariadb1011") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachRound(t, func(t *testing.T) { anotherServer(t, failing(t, name)) })
		})
	}
}

func anotherServer(t *testing.T, from loser) {
	type opened struct {
		*shop
		db    *sql.DB
		store storage.Store
	}
	var all []*opened
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		s := from.scene("by_" + string(claim))
		all = append(all, &opened{shop: &shop{scene: s, claim: claim, gate: newGate(false)}, db: from.server.open(from.at, s.Name, from.relays)})
	}
	from.ready()
	for _, s := range all {
		s.writeAgain(400, 1)
		s.lost, s.store = s.ids(), s.opens(s.db)
	}
	from.lose()
	for _, s := range all {
		s.insist("reach the server", func() error { return s.db.PingContext(t.Context()) })
		s.embed(s.store, s.claim, from.lease, s.gate)
		s.insist("write a message", func() error { return s.order(t.Context(), 0, 1000, true) })
		s.idle(30 * time.Second)
	}
	for _, s := range all {
		for n := range 20 {
			check(t, s.order(t.Context(), n, 2000+n, true))
			s.idle(time.Second / 4)
		}
		s.judgeKept()
	}
}
