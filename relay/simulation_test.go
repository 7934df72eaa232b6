package relay_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

var (
	simulations = flag.Int("simulations", histories(), "how many simulated histories are tried")
	simulated   = flag.Uint64("simulate", 0, "try only the history with this seed")
)

// histories returns the default number of histories.
func histories() int {
	if underRace {
		return 1
	}
	return 8
}

// onlyComputes skips a test with thousands of messages or long times under the race detector, because shorter tests run the
// same code.
func onlyComputes(t *testing.T) {
	t.Helper()
	if underRace && !*wholeHour {
		t.Skip("this test takes long with the race detector: run it without, as make test does, or with -whole-hour")
	}
}

// onlyMutants skips a test of mutants under the race detector, since mutants find no races. The command make test runs each of
// them without the race detector.
func onlyMutants(t *testing.T) {
	t.Helper()
	if underRace && !*wholeHour {
		t.Skip("mutants find no races: run this test without the race detector, as make test does, or with -whole-hour")
	}
}

// TestSimulation runs many histories: random interleavings of writers, relays, crashes and outages on a simulated clock. It
// checks in each that what docs/semantics.md promises is kept.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if *simulated != 0 {
		simulate(t, *simulated, nil)
		return
	}
	for seed := range uint64(*simulations) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulate(t, seed+1, nil)
		})
	}
}

// TestSimulationOfOneKey has a single active key in each sink. So the relay can't learn from a delivery of another key that an
// outage has ended.
func TestSimulationOfOneKey(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*simulations) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateCourse(t, seed+1, nil, hasOneKey)
		})
	}
}

func hasOneKey(c *course) { c.oneKey, c.writers, c.keys = true, 1, c.keys[:1] }

// TestSimulationOfLostSeconds makes the server lose its last second from time to time. So ids are reused for other messages
// while relays have the old messages in memory. Messages that the server hasn't lost are delivered in order, and are marked as
// done only after that. The server loses leases, too. So until its next renewal, a relay may send the messages of a lane that
// another relay has leased, and some messages arrive twice.
func TestSimulationOfLostSeconds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*simulations) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateCourse(t, seed+1, nil, losesSeconds)
		})
	}
}

func losesSeconds(c *course) { c.loses = time.Minute }

// TestSimulationOfRenumbering resets the id sequence from time to time. So new rows get the ids of other rows that are done,
// are held, or are in a relay's memory. All messages are delivered. They are delivered in order once the ids are higher than
// before the reset.
func TestSimulationOfRenumbering(t *testing.T) {
	t.Parallel()
	for seed := range uint64(max(1, *simulations/4)) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			t.Parallel()
			simulateCourse(t, seed+1, nil, renumbers)
		})
	}
}

func renumbers(c *course) { c.renumbers = true }

const tooLate = "was handed over after it had expired"

const overtaken = "was handed over before"

const unsent = "is marked done, and was never sent"

const undecided = "was sent, though an operator had skipped or discarded it"

// isPoison reports whether sinks refuse the message each time, until an operator mends it.
func isPoison(number int64) bool { return number%37 == 0 }

// world is one simulated history: a table, its writers, relays and sinks.
type world struct {
	relay.NoObserver
	t      testing.TB
	random *rand.Rand
	db     *memstore.DB
	wrap   func(storage.Store) storage.Store // replaces the store by one that is broken on purpose; nil: it stays
	spoil  []func(*relay.SinkOptions)        // change a sink's options so that a protection is missing
	course course

	mu sync.Mutex
	// A message's number is part of its message id. It is also its row's id, unless ids are reused.
	numbers   int64
	committed map[string][]int64 // by sink and key, in the order of their commits
	rows      map[int64]int64    // by number: the id of the message's row
	given     int64              // the last assigned id
	highest   int64              // the highest id before the id sequence was reset
	topics    map[int64]string
	loose     map[int64]bool // scheduled messages, which may be delivered in any order
	young     int64          // messages with this number or a higher one were written at the end
	delivered map[arrival]int
	refused   map[arrival]bool    // refused by the sink, and so parked at some time
	expires   map[int64]time.Time // by number: when the message expires; none for messages that don't expire
	told      int                 // how many expired messages the observer was told of
	gone      map[int64]bool      // committed, and then lost by the server
	lost      map[arrival]bool    // delivered, but the relay didn't receive the answer
	cancelled map[int64]bool      // cancelled by their writers before they were due
	mended    map[arrival]bool    // requeued by an operator, and no longer refused
	skipped   map[arrival]bool    // skipped by an operator: they no longer hold their keys, and are not sent
	discarded map[arrival]bool    // discarded by an operator: they no longer hold their keys, are not sent, and are deleted
	last      map[string]int64    // by sink and key: the last delivered message
	downUntil map[string]time.Time
	downAs    map[string]sinks.Outcome // the answer of a sink that is down
	log       map[string]string        // by batch: what the deduplicating sink did with it
	calm      bool
	problems  []string

	byRows  bool                                // the table is claimed by rows, so messages are delivered in any order
	operate func(*memstore.DB) storage.Operator // returns an operator that is broken on purpose

	writers, relays sync.WaitGroup
	trace           []traced
	tracer          *tracer // nil: no trace is written
	incidents       int     // the number of crashes and similar events, without which no message may be sent twice
	falls           int     // how often the server lost its last second
}

// arrival is a message and one of its sinks.
type arrival struct {
	number int64
	sink   string
}

func arrivalOf(m sinks.Message, sink string) arrival { return arrival{numberOf(m.ID), sink} }

// traced is a message that was sent, and its row.
type traced struct {
	row  int64
	text string
}

// course has the properties of one kind of history.
type course struct {
	writers   int
	keys      []string      // the keys of the writers, used in turn
	open      time.Duration // the longest time that a transaction stays open after each of its messages
	rest      time.Duration // the longest time between two transactions of a writer
	call      time.Duration // the longest time that a sink takes for a message
	change    bool          // the table changes from rows to lanes; there is no deduplicating sink, because that requires lanes
	steady    bool          // one relay keeps all lanes, so no other relay reads again the rows that it has missed
	loses     time.Duration // the shortest time between two losses of the server's last second; 0: none
	renumbers bool          // the id sequence is reset from time to time
	several   bool          // some topics have several sinks
	oneKey    bool          // a single key is active in each sink
	holds     bool          // parked messages hold their keys, and an operator decides about them

	lasts      time.Duration // how long writers write messages and failures happen; 0: simulatedTime
	stalls     bool          // processes are suspended from time to time
	unfinished bool          // the history ends soon after the last failure, so only the sent messages are checked, not whether all are delivered
}

// courseOf returns the course for a seed. A third of the histories has overlapping transactions, keys that share lanes, and
// one relay. Another third has the same with relays that start and stop.
func courseOf(seed uint64, random *rand.Rand) course {
	if seed%3 == 0 {
		return course{writers: 4, keys: keysOf(0, 1, 12), open: 5 * time.Millisecond, rest: 600 * time.Millisecond, call: 20 * time.Millisecond}
	}
	return course{
		writers: 2 + random.IntN(5), keys: keysOf(random.IntN(storage.Lanes), 20, 12), steady: seed%3 == 1,
		open: time.Second, rest: 100 * time.Millisecond, call: 32 * time.Millisecond << random.IntN(4),
	}
}

// keysOf returns n keys in the lanes first, first+every, and so on, one key in each of these lanes.
func keysOf(first, every, n int) (keys []string) {
	db := memstore.New()
	for i := range 100 * n {
		db.Write(outbox.Message{Topic: "a.1", Key: fmt.Sprint("key-", i)})
	}
	for i, insert := range db.History() {
		if insert.Lane%every == first%every && len(keys) < n {
			keys = append(keys, fmt.Sprint("key-", i))
		}
	}
	return keys
}

func simulate(t testing.TB, seed uint64, wrap func(storage.Store) storage.Store, spoil ...func(*relay.SinkOptions)) (problems []string) {
	return simulateAs(t, seed, wrap, (*world).play, spoil...)
}

// simulateCourse runs the history of a seed with a change of its course.
func simulateCourse(t testing.TB, seed uint64, wrap func(storage.Store) storage.Store, change func(*course), spoil ...func(*relay.SinkOptions)) (problems []string) {
	return simulateAs(t, seed, wrap, func(w *world) {
		change(&w.course)
		w.play()
	}, spoil...)
}

func simulateAs(t testing.TB, seed uint64, wrap func(storage.Store) storage.Store, play func(*world), spoil ...func(*relay.SinkOptions)) (problems []string) {
	run := func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 7))
		w := &world{
			t: t, random: random, db: memstore.New(), wrap: wrap, spoil: spoil, course: courseOf(seed, random),
			committed: map[string][]int64{}, rows: map[int64]int64{}, topics: map[int64]string{}, loose: map[int64]bool{},
			delivered: map[arrival]int{}, refused: map[arrival]bool{}, expires: map[int64]time.Time{}, gone: map[int64]bool{}, lost: map[arrival]bool{}, cancelled: map[int64]bool{}, mended: map[arrival]bool{}, skipped: map[arrival]bool{}, discarded: map[arrival]bool{}, last: map[string]int64{}, downUntil: map[string]time.Time{}, downAs: map[string]sinks.Outcome{}, log: map[string]string{},
		}
		play(w)
		problems = w.problems
		if wrap == nil && spoil == nil && len(problems) > 0 {
			t.Errorf("seed %d: %d violations, the first: %s", seed, len(problems), problems[0])
			w.explain(problems[0])
			t.Log(strings.Join(problems[max(0, len(problems)-3):], "\n"))
		}
	}
	synctest.Test(t.(*testing.T), run)
	return problems
}

const simulatedTime = 4 * time.Minute

func (c *course) time() time.Duration { return cmp.Or(c.lasts, simulatedTime) }

func (w *world) play() {
	for writer := range w.course.writers {
		w.writers.Go(func() { w.write(writer) })
	}
	end := time.Now().Add(w.course.time())
	w.relays.Go(func() { w.breakSinks(end) })
	for range operators {
		w.relays.Go(func() { w.steer(end) })
	}
	if w.course.loses > 0 {
		w.relays.Go(func() { w.loseSeconds(end) })
	}
	if w.course.renumbers {
		w.relays.Go(func() { w.renumber(end) })
	}
	if w.course.holds {
		var deciding sync.WaitGroup
		stop := make(chan struct{})
		deciding.Go(func() { w.decide(stop) })
		defer func() { close(stop); deciding.Wait() }()
	}
	if w.course.steady {
		w.playSteadily()
		return
	}
	for slot := range 3 {
		w.relays.Go(func() { w.keepRelaying(slot, end) })
	}
	w.calmDown()
	stop := w.run("last", w.db.Store())
	if w.course.unfinished {
		time.Sleep(longestOutage / 2)
		stop()
		time.Sleep(2 * longestOutage) // until calls that the relays have abandoned have returned
		return
	}
	w.goOn()
	stop()
	w.check()
}

// playSteadily runs one relay, and checks the table while that relay runs, so that no other relay delivers messages that it
// has missed.
func (w *world) playSteadily() {
	store := w.db.Store()
	store.Hooks = w.hooks(make(chan struct{}))
	stop := w.run("steady", store)
	w.calmDown()
	if w.course.unfinished {
		stop()
		time.Sleep(2 * longestOutage) // until calls that the relay has abandoned have returned
		return
	}
	w.goOn()
	w.check()
	stop()
}

// goOn writes a few messages to each sink. At most one in 37 is bad (isPoison), so that deliveries show that the sinks work. A
// bad message among the last ones (young) may wait at the end, because no other delivery follows it.
func (w *world) goOn() {
	for round := range 25 {
		tx, written := w.db.Begin(), map[int64]outbox.Message{}
		topics := []string{"a.1", "b.1", "c.1", "a.2", "c.2", "b.1"}
		if w.course.several {
			topics = append(topics, "d.1", "d.2")
		}
		for _, topic := range topics {
			m := outbox.Message{Topic: topic}
			id := w.insert(tx, m)
			if written[id] = m; round == 20 && w.young == 0 {
				w.young = id
			}
		}
		w.commit(tx, written)
		time.Sleep(8 * time.Second)
	}
	time.Sleep(longestOutage + 20*time.Second)
}

// calmDown waits until the writers and relays have ended, and then lets no more failures happen.
func (w *world) calmDown() {
	w.writers.Wait()
	w.relays.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
	clear(w.downUntil)
}

// run starts a relay whose calls to the store don't fail.
func (w *world) run(name string, store storage.Store) (stop func()) {
	r := w.relay(name, store, make(chan struct{}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		w.tracer.stopped(name)
		cancel()
		if err := <-done; err != nil {
			w.problem("relay %s: %v", name, err)
		}
	}
}

// write writes messages with keys that no other writer uses, one transaction after the other.
func (w *world) write(writer int) {
	end := time.Now().Add(w.course.time() * 3 / 4)
	for n := 0; time.Now().Before(end); n++ {
		tx := w.db.Begin()
		written := map[int64]outbox.Message{}
		for range 1 + w.pick(3) {
			m := w.message(writer)
			written[w.insert(tx, m)] = m
			w.nap(w.course.open)
		}
		if w.pick(60) == 0 {
			w.nap(time.Minute)
		}
		if w.pick(4) == 0 {
			tx.Rollback()
		} else {
			w.commit(tx, written)
		}
		w.nap(w.course.rest)
	}
}

// insert assigns a message its number, and inserts it.
func (w *world) insert(tx *memstore.Tx, m outbox.Message) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.numbers++
	m.ID = messageOf(w.numbers)
	if after := time.Duration(w.numbers%400) * 100 * time.Millisecond; w.numbers%7 == 0 && w.young == 0 {
		m.ExpiresAt = w.db.Now().Add(after)
		w.expires[w.numbers] = m.ExpiresAt
	}
	if at := w.db.Now().Add(expireAfter); m.Topic == "a.2" && (m.ExpiresAt.IsZero() || m.ExpiresAt.After(at)) {
		w.expires[w.numbers] = at
	}
	w.tracer.inserts(m)
	w.given = tx.Insert(m)
	w.rows[w.numbers] = w.given
	return w.numbers
}

// expireAfter is the ExpireAfter of the topic a.2. late is how long after its expiry a message may be sent. It allows for the
// time between two heartbeats, which report the database's clock, and for the time from the making of a batch to its arrival.
const (
	expireAfter = 30 * time.Second
	late        = 8 * time.Second
)

// Expired counts the messages that are parked or discarded as expired.
func (w *world) Expired(string, relay.OnExpire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told++
}

func messageOf(number int64) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", number) }

func numberOf(message string) int64 {
	number, err := strconv.ParseInt(strings.TrimLeft(message[24:], "0"), 10, 64)
	if err != nil {
		panic(err)
	}
	return number
}

// loseSeconds makes the server lose its last commits from time to time, like a server that confirms commits before they are on
// its disk or on its replica. Messages that are lost with these commits needn't be delivered.
func (w *world) loseSeconds(end time.Time) {
	for {
		w.nap(w.course.loses)
		if !time.Now().Before(end) {
			return
		}
		restore := w.db.Save()
		w.nap(2 * time.Second)
		w.mu.Lock()
		restore()
		w.falls, w.incidents = w.falls+1, w.incidents+1
		w.trace = append(w.trace, traced{text: time.Now().Format("04:05.000") + " the server has lost its last second"})
		there := w.db.Messages()
		for number := range w.topics {
			w.gone[number] = !there[messageOf(number)]
			w.cancelled[number] = w.cancelled[number] && w.gone[number]
		}
		w.mu.Unlock()
	}
}

// renumber resets the id sequence from time to time. It resets the sequence to 1, as TRUNCATE or a restore without the
// sequence does, or to a little below the current id, so that new ids soon exceed the earlier ones.
func (w *world) renumber(end time.Time) {
	for {
		w.nap(2 * time.Minute)
		if !time.Now().Before(end) {
			return
		}
		w.mu.Lock()
		next := int64(1)
		if w.random.IntN(4) > 0 {
			next = max(1, w.given-w.random.Int64N(200))
		}
		w.db.Renumber(next)
		w.highest, w.given = max(w.highest, w.given), next-1
		w.mu.Unlock()
	}
}

func (w *world) message(writer int) outbox.Message {
	topics := []string{"a.1", "a.2", "b.1", "c.1", "c.2"}
	if w.course.several {
		topics = append(topics, "d.1", "d.1", "d.2")
	}
	m := outbox.Message{Topic: topics[w.pick(len(topics))], Payload: []byte("x")}
	if w.pick(5) > 0 || w.course.oneKey {
		m.Key = w.keyOf(writer)
	}
	if w.pick(20) == 0 {
		m.AvailableAt = time.Now().Add(time.Duration(w.pick(30)) * time.Second)
	}
	return m
}

// keyOf returns a key that no other writer uses, so that no two open transactions have messages of the same key.
func (w *world) keyOf(writer int) string {
	each := len(w.course.keys) / w.course.writers
	return w.course.keys[writer*each+w.pick(each)]
}

// sinksOf returns the sinks of a topic.
func sinksOf(topic string) []string {
	switch topic {
	case "d.1":
		return []string{"a", "b", "c"}
	case "d.2":
		return []string{"a", "b"}
	default:
		return []string{topic[:1]}
	}
}

func (w *world) commit(tx *memstore.Tx, written map[int64]outbox.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tx.Commit()
	for id, m := range written {
		w.gone[id] = !tx.Committed()
		w.topics[id] = m.Topic
		w.loose[id] = m.Key == "" || !m.AvailableAt.IsZero() || w.unordered()
		if id%3 == 0 && !m.AvailableAt.IsZero() && tx.Committed() {
			w.writers.Go(func() { w.cancel(id, m.AvailableAt) })
		}
		for _, sink := range sinksOf(m.Topic) {
			ref := sink + "/" + m.Key
			w.committed[ref] = append(w.committed[ref], id)
		}
	}
}

// cancel cancels a scheduled message at some time before it is due, if the message still exists.
func (w *world) cancel(number int64, due time.Time) {
	time.Sleep(time.Until(due) * time.Duration(number%7) / 7)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.db.Cancel(0, messageOf(number))) > 0 {
		w.cancelled[number], w.gone[number] = true, true
	}
}

// unordered reports whether messages may be delivered in any order: the table is claimed by rows, or no relay has changed it
// to lanes yet. With a store that is broken on purpose, only the course counts, since such a store may never change the table.
func (w *world) unordered() bool {
	return w.course.change && (w.byRows || w.wrap == nil && w.db.Claim() != storage.ByLanes)
}

// keepRelaying runs relays one after the other. Some of them are stopped, and some are killed.
func (w *world) keepRelaying(slot int, end time.Time) {
	for n := 0; time.Now().Before(end); n++ {
		life := min(w.span(40*time.Second), time.Until(end))
		w.oneLife(fmt.Sprintf("relay-%d-%d", slot, n), life, w.pick(2) == 0)
		w.nap(5 * time.Second)
	}
}

var errDead = errors.New("the process is dead")

// oneLife runs a relay for the given time, and then stops or kills it. All calls of a killed relay to the table and its sinks
// fail.
func (w *world) oneLife(name string, life time.Duration, kill bool) {
	dead := make(chan struct{})
	store := w.db.Store()
	store.Hooks = w.hooks(dead)
	r := w.relay(name, store, dead)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	select {
	case <-time.After(life):
	case <-done:
		return
	}
	if kill {
		w.incident()
		close(dead)
		w.tracer.killed(name)
		r.Abort()
	}
	w.tracer.stopped(name)
	cancel()
	<-done
}

func (w *world) hooks(dead chan struct{}) memstore.Hooks {
	var stalledUntil time.Time
	disturb := func(ctx context.Context, op memstore.Op) error {
		if w.course.stalls {
			w.stall(&stalledUntil)
		}
		if op == memstore.OpSetClaimMode && w.course.steady {
			return nil // in a steady course only one relay runs, and it would end if this call failed
		}
		return w.disturb(ctx, dead)
	}
	return memstore.Hooks{Fail: disturb, Lose: disturb}
}

// stall suspends a relay's process from time to time: all its calls to the store wait until the process resumes.
func (w *world) stall(until *time.Time) {
	begins := w.pick(200) == 0 && !w.isCalm()
	w.mu.Lock()
	if begins {
		w.incidents++
		*until = time.Now().Add(time.Duration(w.random.Int64N(int64(9 * time.Second))))
	}
	wait := time.Until(*until)
	w.mu.Unlock()
	time.Sleep(wait)
}

// byID is a store whose pages have the rows of all lanes in the order of ids, as stores may do.
type byID struct{ *memstore.Store }

func (s byID) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	limit := request.Limit
	request.Limit, request.MaxBytes = 1<<30, 1<<30
	page, err := s.Store.Read(ctx, request)
	slices.SortFunc(page.Rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
	if len(page.Rows) >= limit && limit > 0 {
		page.Rows, page.More = page.Rows[:limit], true
		page.Through = page.Rows[limit-1].ID
	}
	return page, err
}

// disturb makes a call of the store slow, or makes it fail.
func (w *world) disturb(ctx context.Context, dead chan struct{}) error {
	select {
	case <-dead:
		return errDead
	default:
	}
	if w.isCalm() {
		return nil
	}
	w.napFor(ctx, w.span(10*time.Millisecond))
	if w.pick(40) == 0 {
		w.napFor(ctx, w.span(2*time.Second))
	}
	if w.pick(300) == 0 && !w.course.steady {
		w.incident() // the process was suspended, or its packets were lost for some time
		time.Sleep(w.span(30 * time.Second))
	}
	if w.pick(50) == 0 {
		w.incident() // a settlement whose result is unknown may arrive too late
		return errors.New("the connection broke")
	}
	select {
	case <-dead:
		return errDead
	default:
		return ctx.Err()
	}
}

func (w *world) relay(name string, store storage.Store, dead chan struct{}) *relay.Relay {
	if memory, ok := store.(*memstore.Store); ok && w.pick(2) == 0 {
		store = byID{memory}
	}
	if w.wrap != nil {
		store = w.wrap(store)
	}
	store = w.tracer.wrap(name, store)
	sink := func(of string, order sinks.Order) relay.SinkOptions {
		var sink sinks.Sink = &unsteady{w: w, name: of, relay: name, dead: dead, order: order}
		if _, able := store.(storage.Journaler); of == "c" && able && !w.course.change {
			sink = &deduplicating{unsteady: sink.(*unsteady)}
		}
		options := relay.SinkOptions{
			Sink: sink, Batch: 1 + w.pick(8), Buffer: 4 + w.pick(30),
			Workers: 1 + w.pick(3), Timeout: 5 * time.Second, MaxAttempts: -1,
			BreakerThreshold: 2 + w.pick(4),
			Backoff:          relay.Backoff{Min: 100 * time.Millisecond, Max: 3 * time.Second},
			BreakerBackoff:   relay.Backoff{Min: 100 * time.Millisecond, Max: 3 * time.Second},
		}
		if w.course.holds {
			options.OnPark = relay.HoldKey
		}
		for _, spoil := range w.spoil {
			spoil(&options)
		}
		return options
	}
	claim := storage.ByLanes
	if w.isByRows() {
		claim = storage.ByRows
	}
	routes := []relay.Route{
		{Prefix: "a.", Sink: "a"}, {Topic: "a.2", Sink: "a", ExpireAfter: expireAfter, OnExpire: relay.DiscardExpired},
		{Topic: "b.1", Sink: "b"}, {Prefix: "c.", Sink: "c", OnExpire: relay.DiscardExpired},
	}
	if w.course.several {
		routes = append(routes, relay.Route{Prefix: "d.", Sinks: []string{"a", "b"}}, relay.Route{Topic: "d.1", Sink: "c", Also: true})
	}
	r, err := relay.New(store, relay.Options{
		Name: name, Claim: claim, Lease: 6 * time.Second, DrainTimeout: 3 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Sinks:    map[string]relay.SinkOptions{"a": sink("a", sinks.OrderNone), "b": sink("b", sinks.OrderPrefix), "c": sink("c", sinks.OrderPrefix)},
		Routes:   routes,
		Observer: w,
	})
	if err != nil {
		w.t.Error(err)
	}
	if w.pick(2) == 0 {
		r.KeepBlockedKeys(w.pick(3)) // the relay asks the database about the other blocked keys
	}
	if w.pick(2) == 0 {
		r.PassAtMost(1 + w.pick(20))
	}
	return r
}

// unsteady is a sink that is slow, fails and rejects messages, and loses answers.
type unsteady struct {
	w     *world
	name  string
	relay string
	dead  chan struct{}
	order sinks.Order
}

func (s *unsteady) Order() sinks.Order          { return s.order }
func (s *unsteady) Close(context.Context) error { return nil }
func (s *unsteady) Open(ctx context.Context) error {
	if answer, down := s.w.isDown(s.name); down && answer.Result == sinks.Unavailable {
		return errors.New("down")
	}
	return nil
}

func (s *unsteady) Send(ctx context.Context, batch []sinks.Message) (outcomes []sinks.Outcome) {
	s.w.tracer.sends(s.relay, s.name, batch)
	defer func() { s.w.tracer.answered(s.relay, s.name, batch, outcomes) }()
	failed := map[string]bool{}
	for _, m := range batch {
		s.w.napFor(ctx, s.w.span(s.w.course.call))
		answer, down := s.w.isDown(s.name)
		switch {
		case ctx.Err() != nil || s.isDead() || failed[m.Key]:
			outcomes = append(outcomes, sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))
			failed[m.Key] = m.Key != ""
		case down:
			outcomes = append(outcomes, answer)
			s.w.tracer.arrived(s.relay, m, answer, true)
			failed[m.Key] = m.Key != ""
		default:
			o := s.w.receive(s.name, s.relay, m)
			outcomes = append(outcomes, o)
			s.w.tracer.arrived(s.relay, m, o, false)
			failed[m.Key] = m.Key != "" && o.Result != sinks.Delivered
		}
	}
	return outcomes
}

func (s *unsteady) isDead() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// receive accepts a message, and checks that it may be sent now.
func (w *world) receive(sink, by string, m sinks.Message) sinks.Outcome {
	fate := w.pick(100)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkOrder(sink, m)
	if w.cancelled[numberOf(m.ID)] {
		w.problem("message %d was handed over although its writer had cancelled it", numberOf(m.ID))
	}
	w.traced(m, "sink %s, attempt %d, fate %d, by %s", sink, m.Attempt, fate, by)
	w.checkDecided(sink, m)
	switch {
	case isPoison(numberOf(m.ID)) && !w.mended[arrivalOf(m, sink)]:
		w.refused[arrivalOf(m, sink)] = true
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "poison")
	case fate < 4 && !w.calm:
		return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "try again")
	case fate >= 96 && !w.calm:
		return sinks.Postpone(sinks.ReasonBusy, "later", time.Duration(1+fate)*10*time.Millisecond)
	case fate < 6 && !w.calm:
		w.arrived(sink, m)
		w.lost[arrivalOf(m, sink)] = true
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the answer was lost")
	}
	w.arrived(sink, m)
	if w.delivered[arrivalOf(m, sink)] > 1 && w.incidents == 0 && !w.lost[arrivalOf(m, sink)] {
		w.problem("message %d came twice, although there was no crash or similar event", numberOf(m.ID))
	}
	return sinks.Ok("")
}

// traced adds an event of a message to the trace of the history.
func (w *world) traced(m sinks.Message, format string, args ...any) {
	number := numberOf(m.ID)
	text := fmt.Sprintf("%s %d, row %d, key %s: ", time.Now().Format("04:05.000"), number, w.rows[number], m.Key) + fmt.Sprintf(format, args...)
	w.trace = append(w.trace, traced{w.rows[number], text})
}

func (w *world) arrived(sink string, m sinks.Message) {
	w.delivered[arrivalOf(m, sink)]++
	if !w.loose[numberOf(m.ID)] {
		w.last[sink+"/"+m.Key] = numberOf(m.ID)
	}
}

// checkLast checks that the last received message of each key is its newest: if a message is sent again after a crash, all
// later messages of its key are sent again, too. So an application may keep only the last received message of a key.
func (w *world) checkLast() {
	if w.falls > 0 || w.highest > 0 {
		return // the server may have lost the newest message, or the newest message may not have the highest id
	}
	for ref, ids := range w.committed {
		sink, _, _ := strings.Cut(ref, "/")
		newest := int64(0)
		for _, id := range ids {
			if !w.loose[id] && w.delivered[arrival{id, sink}] > 0 {
				newest = max(newest, id)
			}
		}
		if _, expires := w.expires[newest]; w.last[ref] != newest && !expires { // unless the newest message expired before it could be sent again
			w.problem("key %s: the last message that arrived was %d, but the newest is %d", ref, w.last[ref], newest)
		}
	}
}

// checkOrder checks promise 2 of docs/semantics.md for a message that is sent now.
func (w *world) checkOrder(sink string, m sinks.Message) {
	if w.topics[numberOf(m.ID)] == "" {
		w.problem("message %d was handed over but never committed", numberOf(m.ID))
	}
	if at, expires := w.expires[numberOf(m.ID)]; expires && sink != "c" && w.db.Now().After(at.Add(late)) { // a message may be sent to c again after its expiry, because c may have received it before
		w.problem("message %d %s, at %v", numberOf(m.ID), tooLate, at)
	}
	if !slices.Contains(sinksOf(m.Topic), sink) {
		w.problem("message %d of topic %s went to sink %s", numberOf(m.ID), m.Topic, sink)
	}
	if w.loose[numberOf(m.ID)] {
		return
	}
	for _, before := range w.committed[sink+"/"+m.Key] {
		if before < numberOf(m.ID) && w.rows[before] > w.highest && !w.loose[before] && !w.gone[before] && w.delivered[arrival{before, sink}] == 0 && !w.parked(arrival{before, sink}) {
			w.problem("key %s: %d %s %d was delivered or parked", m.Key, numberOf(m.ID), overtaken, before)
		}
	}
}

// checkDecided checks that a message that is sent was not skipped or discarded by an operator.
func (w *world) checkDecided(sink string, m sinks.Message) {
	if a := arrivalOf(m, sink); w.falls == 0 && (w.skipped[a] || w.discarded[a]) {
		w.problem("message %d %s", a.number, undecided)
	}
}

// parked reports whether the message is parked or discarded for a sink, and doesn't hold its key.
func (w *world) parked(a arrival) bool {
	number := a.number
	if w.skipped[a] || w.discarded[a] {
		return true
	}
	if w.falls > 0 && (w.refused[a] && !w.course.holds || w.hasExpired(number, w.db.Now())) { // the server may have lost the settlement with its last second
		return true
	}
	found, err := w.db.Store().List(context.Background(), storage.Filter{IDs: []string{messageOf(number)}})
	found = slices.DeleteFunc(found, func(info storage.Info) bool {
		return !slices.Contains(sinksOfRow(info), a.sink)
	})
	if err != nil || len(found) == 0 {
		return err == nil && w.hasExpired(number, w.db.Now())
	}
	return found[0].State == storage.StateError && (!w.course.holds || strings.HasPrefix(found[0].LastError, storage.Expired))
}

// sinksOfRow returns the sinks that need a row.
func sinksOfRow(info storage.Info) []string {
	if named := storage.SplitSinks(info.Sinks); named != nil {
		return named
	}
	return sinksOf(info.Message.Topic)
}

// hasExpired reports whether a message had expired at a time.
func (w *world) hasExpired(number int64, by time.Time) bool {
	at, expires := w.expires[number]
	return expires && !by.Before(at)
}

// longestOutage is the longest outage of a sink.
const longestOutage = 20 * time.Second

// outages has the answers that sinks give while they are down.
var outages = []sinks.Outcome{
	sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down"),
	sinks.Fail(sinks.Reject, sinks.ReasonRefused, "the login has expired"),
	sinks.Fail(sinks.Retry, sinks.ReasonServerError, "bad gateway"),
}

// breakSinks takes each sink down from time to time.
func (w *world) breakSinks(end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(5 * time.Second) // long enough for refused messages to be retried
		w.nap(25 * time.Second)
		down := time.Now().Add(w.span(longestOutage))
		w.mu.Lock()
		name := []string{"a", "b", "c"}[w.random.IntN(3)]
		answer := outages[w.random.IntN(len(outages))]
		if time.Since(w.downUntil[name]) > 5*time.Second { // the next outage begins only after the sink has worked, so that outages don't merge
			w.downUntil[name], w.downAs[name] = down, answer
			w.tracer.outage(name)
		}
		w.mu.Unlock()
	}
}

func (w *world) isDown(sink string) (answer sinks.Outcome, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.downAs[sink], time.Now().Before(w.downUntil[sink])
}

// check checks promises 1, 4 and 5 of docs/semantics.md at the end of the history.
func (w *world) check() {
	rows, err := w.db.Store().List(context.Background(), storage.Filter{Limit: 1_000_000})
	if err != nil {
		w.problem("list: %v", err)
	}
	states, expired := map[arrival]storage.State{}, 0
	for _, row := range rows {
		state := row.State
		if row.State == storage.StateError && strings.HasPrefix(row.LastError, storage.Expired) {
			state = stateExpired
		}
		for _, sink := range sinksOfRow(row) {
			a := arrival{numberOf(row.Message.ID), sink}
			if states[a] != "" {
				w.problem("message %d has two rows for sink %s", a.number, sink)
			}
			states[a] = state
		}
		if strings.Contains(row.LastError, "connection") {
			w.problem("message %d was charged for an outage: %s", row.ID, row.LastError)
		}
	}
	settled := map[int64]time.Time{} // by row: when it was parked or discarded; empty if ids are reused
	for _, c := range w.db.History() {
		if parked := c.To == storage.StateDiscarded || c.To == storage.StateError; parked && !c.Refused && w.falls == 0 && w.highest == 0 {
			settled[c.ID] = c.At
		}
	}
	owed := 0
	for id, topic := range w.topics {
		if w.gone[id] {
			continue
		}
		for _, sink := range sinksOf(topic) {
			owed++
			a := arrival{id, sink}
			if states[a] == storage.StateDone && w.delivered[a] == 0 {
				w.problem("message %d %s", id, unsent)
			}
			want := storage.StateDone
			if isPoison(id) {
				want = storage.StateError
			}
			switch state, there := states[a]; {
			case w.discarded[a] && !there:
				owed--
				continue
			case (!there || state == stateExpired) && w.hasExpired(id, w.db.Now()):
				if parks := slices.Contains([]string{"a.1", "b.1", "d.1", "d.2"}, topic); parks != there {
					w.problem("message %d has expired; it is in the table: %t", id, there)
				}
				if at, known := settled[w.rows[id]]; known && at.Before(w.expires[id]) && len(sinksOf(topic)) == 1 {
					w.problem("message %d was parked or discarded as expired at %v, but expires at %v", id, at, w.expires[id])
				}
				states[a] = want
				expired++
			case w.discarded[a] && w.falls == 0:
				w.problem("message %d ended as %q, want it discarded", id, state)
			case (w.mended[a] || w.falls > 0 && w.delivered[a] > 0) && state == storage.StateDone: // for lost messages, an operator may have made another decision later
				want = storage.StateDone
			}
			if waits := id >= w.young && want == storage.StateError && states[a] != storage.StateDone; states[a] != want && !waits {
				w.problem("message %d (key %v) ended as %q at sink %s, want %q", id, w.loose[id], states[a], sink, want)
			}
		}
	}
	w.checkLast()
	if w.told < expired {
		w.problem("%d messages have expired, but %d were reported to the observer", expired, w.told)
	}
	if len(states) != owed {
		w.problem("%d rows, but %d messages were committed", len(states), owed)
	}
}

// stateExpired is the state, in this test, of a message that is parked because it has expired.
const stateExpired storage.State = "expired"

func (w *world) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *world) incident() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.incidents++
}

func (w *world) isByRows() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byRows
}

func (w *world) isCalm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calm
}

func (w *world) pick(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// span returns a random duration of at most d; short ones are more frequent than long ones.
func (w *world) span(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.random.Float64()
	return time.Duration(f * f * float64(d))
}

func (w *world) nap(d time.Duration) { time.Sleep(w.span(d)) }

func (w *world) napFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// explain logs what happened in the lanes of the messages that a problem names: which messages were sent, the history of their
// rows, and the rows that are left.
func (w *world) explain(problem string) {
	lanes, rows := map[int]bool{}, map[int64]bool{}
	for _, word := range strings.Fields(problem) {
		number, _ := strconv.ParseInt(word, 10, 64)
		rows[w.rows[number]] = true
	}
	lanesOf, lines := map[int64]int{}, []string{}
	for _, c := range w.db.History() {
		if lanesOf[c.ID] = c.Lane; c.ID != 0 && rows[c.ID] {
			lanes[c.Lane] = true
		}
	}
	for _, c := range w.db.History() {
		if lanes[c.Lane] {
			lines = append(lines, fmt.Sprintf("%s %s lane %d, relay %q, fence %d: %d %s to %s, refused %t, fenced %t", c.At.Format("04:05.000"), c.Op, c.Lane, c.Relay, c.Fence, c.ID, c.From, c.To, c.Refused, c.Fenced))
		}
	}
	for _, each := range w.trace {
		if lane, known := lanesOf[each.row]; each.row == 0 || known && lanes[lane] {
			lines = append(lines, each.text)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(a[:9], b[:9]) })
	w.t.Log(strings.Join(lines, "\n"))
	left, err := w.db.Store().List(context.Background(), storage.Filter{Limit: 1_000_000})
	for _, r := range left {
		if lanes[r.Lane] && r.State != storage.StateDone {
			w.t.Logf("left in lane %d: %d, key %q: %s, holds %d, attempts %d, %s", r.Lane, r.ID, r.Message.Key, r.State, r.Holds, r.Attempts, r.LastError)
		}
	}
	if err != nil {
		w.t.Log(err)
	}
}
