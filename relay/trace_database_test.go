package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Traces of histories on real databases, in real time. One mutex per history is held by each call of a relay, by each statement
// of a writer and by each decision of the operator. So the order of the effects is the order of the events in the trace.

var traceDatabases = flag.Int("trace-databases", 25, "how many traces TestTracesOfDatabases writes for each database and driver")

const (
	chaosTime        = 8 * time.Second // how long failures happen in a history
	chaosLease       = 3 * time.Second
	chaosDrain       = time.Second
	chaosExpireAfter = 2 * time.Second
	longestDelay     = 5 * time.Second // of a call; longer than a lease
)

// TestTracesOfDatabases writes traces of histories on all databases that are configured. It fails if a history loses a message,
// delivers a key's messages out of order, or if a call fails although nothing else uses the database.
func TestTracesOfDatabases(t *testing.T) {
	t.Parallel()
	if *traceFolder == "" {
		t.Skip("this test runs only with the flag -traces")
	}
	for _, target := range chaosTargets() {
		for seed := range uint64(*traceDatabases) {
			t.Run(fmt.Sprintf("%s/%d", target.Name, seed), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(*traceFolder, "databases", fmt.Sprintf("%s-%03d.jsonl", fileName(target), seed))
				for _, problem := range chaosOn(t, target, seed, path, nil) {
					t.Error(problem)
				}
			})
		}
	}
}

// TestTracesOfDatabasesOfMutants writes traces with stores that are broken on purpose, and the problems that each history finds
// without the model.
func TestTracesOfDatabasesOfMutants(t *testing.T) {
	t.Parallel()
	if *traceFolder == "" {
		t.Skip("this test runs only with the flag -traces")
	}
	stores := brokenStores()
	for _, name := range []string{
		"late rows are not reported", "the safe id passes open transactions", "a page reports that it is complete", "a full page was read to the end",
		"held keys are forgotten at takeover", "held keys are not found", "leases end before the relay knows", "scheduled rows are due immediately",
		"the database's time is an hour ahead", "rows have no expiry", "discarded rows are done", "discarded rows stay",
	} {
		for _, target := range chaosTargets() {
			if target.Driver != "sqlite" && target.Driver != "pgx" {
				continue // these defects don't depend on the driver
			}
			t.Run(name+"/"+target.Name, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(*traceFolder, "databases", "mutants", name, fileName(target))
				problem := ""
				if problems := chaosOn(t, target, 1, path+".jsonl", stores[name]); len(problems) > 0 {
					problem = problems[0]
				}
				if err := os.WriteFile(path+".txt", []byte(problem), 0o644); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// chaosTargets returns the databases whose tables the test reads with the same statements.
func chaosTargets() []testdb.Target {
	kinds := []string{testdb.Postgres, testdb.MySQL, testdb.MariaDB, testdb.SQLite}
	return slices.DeleteFunc(testdb.Each(), func(target testdb.Target) bool { return !slices.Contains(kinds, target.Kind) })
}

func fileName(target testdb.Target) string { return strings.ReplaceAll(target.Name, "/", "-") }

// chaos is one history on a real database.
type chaos struct {
	t       testing.TB
	db      testdb.Database
	dialect dialect.Dialect
	table   dialect.Table
	tracer  *tracer
	wrap    func(storage.Store) storage.Store // nil: the store is not broken
	holds   bool                              // parked messages hold their keys
	stalls  bool                              // all calls of a relay are delayed together from time to time, as if its process were suspended

	turn  sync.Mutex     // held while a call, a statement or a decision uses the database
	calls sync.WaitGroup // the calls in progress; a call of a killed relay may end after the relay

	mu       sync.Mutex
	random   *rand.Rand
	numbers  int64
	messages map[int64]*chaosMessage // committed messages, by number
	down     map[string]time.Time    // by sink: the end of its outage
	downAs   sinks.Outcome
	calm     bool
	events   int // counts deliveries and decisions
	problems []string
}

// chaosMessage is a committed message and what has happened to it.
type chaosMessage struct {
	outbox.Message
	id        int64
	delivered int // the number of the first delivery; 0: none
	refused   bool
	failures  int
	decided   int // the number of the operator's first decision; 0: none
	discarded bool
	mended    bool
}

func (m *chaosMessage) loose() bool { return m.Key == "" || !m.AvailableAt.IsZero() }

func (m *chaosMessage) expires() bool { return !m.ExpiresAt.IsZero() || m.Topic == "a.2" }

// chaosOn runs a history, writes its trace, and returns the problems that it has found.
func chaosOn(t *testing.T, target testdb.Target, seed uint64, path string, wrap func(storage.Store) storage.Store) []string {
	db := target.OpenOutbox(t)
	db.DB.SetMaxIdleConns(8)
	c := &chaos{
		t: t, db: db, tracer: newTracer(), wrap: wrap, holds: seed%3 > 0, stalls: seed%2 > 0, random: rand.New(rand.NewPCG(seed, 38)),
		messages: map[int64]*chaosMessage{}, down: map[string]time.Time{},
	}
	c.tracer.expireAfter = chaosExpireAfter
	c.tracer.add(&traceEvent{E: "database", Drain: chaosDrain.Microseconds(), Reuses: c.oneWriter()})
	var err error
	if c.dialect, err = dialect.ByName(db.Kind); err != nil {
		t.Fatal(err)
	}
	if c.table, err = dialect.ParseTable(dialect.DefaultTable); err != nil {
		t.Fatal(err)
	}
	c.play()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.tracer.write(path); err != nil {
		t.Fatal(err)
	}
	return c.problems
}

// oneWriter reports whether the database allows only one open transaction that writes. Such a transaction holds the turn until its
// end. If it rolls back, its ids are assigned again.
func (c *chaos) oneWriter() bool { return c.db.Kind == testdb.SQLite }

func (c *chaos) play() {
	end := time.Now().Add(chaosTime)
	var writers, relays, operator sync.WaitGroup
	for n := range 4 {
		writers.Go(func() { c.write(n, end) })
	}
	for slot := range 3 {
		relays.Go(func() { c.keepRelaying(slot, end) })
	}
	relays.Go(func() { c.breakSinks(end) })
	stopped := make(chan struct{})
	operator.Go(func() { c.decide(stopped) })
	writers.Wait()
	relays.Wait()
	c.mu.Lock()
	c.calm = true
	clear(c.down)
	c.mu.Unlock()

	ctx, cancel := context.WithCancel(context.Background())
	r := c.relay("last", make(chan struct{}))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	c.finish()
	c.tracer.stopped("last")
	cancel()
	if err := <-done; err != nil {
		c.problem("relay last: %v", err)
	}
	close(stopped)
	operator.Wait()
	c.calls.Wait()
	c.judge()
}

// finish waits until no message is left that a relay can deliver.
func (c *chaos) finish() {
	left := 0
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		c.turn.Lock()
		err := c.db.DB.QueryRow("SELECT (SELECT COUNT(*) FROM " + c.table.Pending + ") + (SELECT COUNT(*) FROM " + c.table.Held + " WHERE state <> 'error' OR holds > 0)").Scan(&left)
		c.turn.Unlock()
		if err != nil {
			c.problem("count the messages that are left: %v", err)
		}
		if err != nil || left == 0 {
			return
		}
	}
	c.problem("%d messages were neither delivered nor parked", left)
}

// judge checks that each message was delivered, parked, discarded or has expired, and that no message overtook an earlier one of
// its key.
func (c *chaos) judge() {
	states := map[int64]string{}
	err := c.query(context.Background(), "SELECT id, state FROM "+c.table.Messages, func(rows *sql.Rows) error {
		var id int64
		var state string
		err := rows.Scan(&id, &state)
		states[id] = state
		return err
	})
	if err != nil {
		c.problem("read the states: %v", err)
	}
	keys := map[string][]*chaosMessage{}
	for number, m := range c.messages {
		state := states[m.id]
		switch {
		case state == "done" && m.delivered == 0:
			c.problem("message %d %s", number, unsent)
		case state == "" && !m.discarded && !m.expires():
			c.problem("message %d is lost", number)
		}
		if !m.loose() {
			of := m.Topic[:1] + "/" + m.Key
			keys[of] = append(keys[of], m)
		}
	}
	for key, all := range keys {
		slices.SortFunc(all, func(a, b *chaosMessage) int { return int(a.id - b.id) })
		for i, m := range all {
			if m.decided > 0 && m.decided < m.delivered {
				continue // a message that was requeued has no place in the order
			}
			for _, before := range all[:i] {
				waits := before.delivered == 0 || before.delivered > m.delivered
				parked := before.refused && !c.holds || before.decided > 0 && before.decided < m.delivered
				if m.delivered > 0 && waits && !parked && !before.expires() {
					c.problem("key %s: row %d %s row %d was delivered or parked", key, m.id, overtaken, before.id)
				}
			}
		}
	}
}

func (c *chaos) query(ctx context.Context, query string, each func(*sql.Rows) error) error {
	rows, err := c.db.DB.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (c *chaos) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *chaos) pick(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// span returns a random duration of at most d. Short durations are more frequent than long ones.
func (c *chaos) span(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.random.Float64()
	return time.Duration(f * f * float64(d))
}

// write writes messages with keys that no other writer uses, one transaction after the other.
func (c *chaos) write(writer int, end time.Time) {
	table, err := outbox.NewWriter(c.dialect, outbox.Options{})
	if err != nil {
		c.problem("%v", err)
		return
	}
	for time.Now().Before(end) {
		if err := c.writeOnce(table, writer); err != nil {
			c.problem("writer %d: %v", writer, err)
			return
		}
		time.Sleep(c.span(400 * time.Millisecond))
	}
}

// writeOnce runs a transaction. It takes turns with the relays for each statement, or for the whole transaction if the database
// allows only one writer.
func (c *chaos) writeOnce(table *outbox.Writer, writer int) error {
	open, whole := 150*time.Millisecond, c.oneWriter()
	if whole {
		open = 5 * time.Millisecond
	}
	inTurn := func(work func() error) error {
		if !whole {
			c.turn.Lock()
			defer c.turn.Unlock()
		}
		return work()
	}
	if whole {
		c.turn.Lock()
		defer c.turn.Unlock()
	}
	ctx := context.Background()
	var tx *sql.Tx
	err := inTurn(func() (err error) {
		tx, err = c.db.DB.BeginTx(ctx, nil)
		return err
	})
	if err != nil {
		return err
	}
	written := map[int64]*chaosMessage{}
	var rows []memstore.Change
	for range 1 + c.pick(3) {
		number, m := c.message(writer)
		err := inTurn(func() error {
			row, err := c.insert(ctx, table, tx, m.Message)
			rows, m.id = append(rows, row), row.ID
			return err
		})
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		written[number] = m
		time.Sleep(c.span(open))
	}
	if !whole && c.pick(12) == 0 {
		time.Sleep(c.span(2 * time.Second))
	}
	return inTurn(func() error {
		if c.pick(4) == 0 {
			err := tx.Rollback()
			c.tracer.observe(ctx, memstore.OpRollback, rows)
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		c.tracer.observe(ctx, memstore.OpInsert, rows)
		c.mu.Lock()
		defer c.mu.Unlock()
		for number, m := range written {
			c.messages[number] = m
		}
		return nil
	})
}

func (c *chaos) message(writer int) (number int64, m *chaosMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.numbers++
	m = &chaosMessage{Message: outbox.Message{ID: messageOf(c.numbers), Topic: []string{"a.1", "a.2", "b.1", "c.1"}[c.random.IntN(4)], Payload: []byte("x")}}
	if c.random.IntN(5) > 0 {
		m.Key = fmt.Sprint("key-", writer, "-", c.random.IntN(2))
	}
	now := time.Now().UTC().Truncate(time.Millisecond) // the precision of SQLite
	if c.random.IntN(15) == 0 {
		m.AvailableAt = now.Add(time.Duration(c.random.IntN(2000)) * time.Millisecond)
	}
	if c.numbers%9 == 0 {
		m.ExpiresAt = now.Add(time.Duration(c.random.IntN(4000)) * time.Millisecond)
	}
	return c.numbers, m
}

// insert inserts a message, and records the id and the lane that the database has assigned to it.
func (c *chaos) insert(ctx context.Context, table *outbox.Writer, tx *sql.Tx, m outbox.Message) (row memstore.Change, err error) {
	row.At = time.Now()
	if err := table.Write(ctx, tx, m); err != nil {
		return row, err
	}
	if err := tx.QueryRowContext(ctx, "SELECT id, lane FROM "+c.table.Pending+" WHERE message_id = '"+m.ID+"'").Scan(&row.ID, &row.Lane); err != nil {
		return row, err
	}
	c.tracer.inserts(m)
	c.tracer.observe(ctx, memstore.OpAssign, []memstore.Change{row})
	return row, nil
}

// decide requeues, skips and discards parked messages until the channel is closed. When the failures have ended, it requeues the
// messages that hold their keys.
func (c *chaos) decide(stop chan struct{}) {
	table, err := sqlstore.Open(context.Background(), c.db.DB, c.dialect, sqlstore.Options{Operator: true})
	if err != nil {
		c.problem("operator: %v", err)
		return
	}
	for {
		select {
		case <-stop:
			return
		case <-time.After(c.span(700 * time.Millisecond)):
		}
		c.turn.Lock()
		if err := c.decideAll(table); err != nil {
			c.problem("operator: %v", err)
		}
		c.turn.Unlock()
	}
}

func (c *chaos) decideAll(table storage.Operator) error {
	ctx := context.Background()
	parked, err := table.List(ctx, storage.Filter{State: storage.StateError, Limit: 1000})
	if err != nil {
		return err
	}
	for _, info := range parked {
		c.mu.Lock()
		m, calm, choice, skipped := c.messages[numberOf(info.Message.ID)], c.calm, c.random.IntN(4), c.random.IntN(2) == 0
		c.events++
		at := c.events
		c.mu.Unlock()
		holds := info.Holds == storage.HoldsKey
		if m == nil || calm && !holds || !calm && skipped {
			continue
		}
		op, change := memstore.OpRequeue, table.Requeue
		switch {
		case calm:
		case choice == 0 && holds:
			op, change = memstore.OpSkip, table.Skip
		case choice == 1:
			op, change = memstore.OpDiscard, table.Discard
		}
		n, err := change(ctx, storage.Filter{IDs: []string{fmt.Sprint(info.ID)}})
		if n != 1 || err != nil {
			return fmt.Errorf("%s of row %d changed %d messages, %w", op, info.ID, n, err)
		}
		c.tracer.observe(ctx, op, []memstore.Change{{ID: info.ID}})
		c.mu.Lock()
		m.discarded = m.discarded || op == memstore.OpDiscard
		m.mended = m.mended || choice == 2
		if m.decided == 0 {
			m.decided = at
		}
		c.mu.Unlock()
	}
	return nil
}

// breakSinks takes a sink down from time to time.
func (c *chaos) breakSinks(end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(time.Second + c.span(2*time.Second))
		lasts := c.span(1500 * time.Millisecond)
		c.mu.Lock()
		name := []string{"a", "b", "c"}[c.random.IntN(3)]
		if now := time.Now(); now.Sub(c.down[name]) > time.Second { // outages don't merge
			c.down[name], c.downAs = now.Add(lasts), outages[c.random.IntN(len(outages))]
			c.tracer.outage(name)
		}
		c.mu.Unlock()
		time.Sleep(lasts)
	}
}

// keepRelaying runs relays one after the other. Some of them are stopped, and some are killed.
func (c *chaos) keepRelaying(slot int, end time.Time) {
	for n := 0; time.Now().Before(end); n++ {
		life := min(time.Second+c.span(8*time.Second), time.Until(end))
		c.oneLife(fmt.Sprintf("relay-%d-%d", slot, n), life, c.pick(2) == 0)
		time.Sleep(c.span(time.Second))
	}
}

// oneLife runs a relay for the given time, and then stops or kills it. From the event in the trace on, no call of a killed relay
// takes effect.
func (c *chaos) oneLife(name string, life time.Duration, kill bool) {
	dead := make(chan struct{})
	r := c.relay(name, dead)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	select {
	case <-time.After(life):
	case <-done: // its first call has failed
		return
	}
	if kill {
		c.turn.Lock()
		close(dead)
		c.tracer.killed(name)
		c.turn.Unlock()
		r.Abort()
	}
	c.tracer.stopped(name)
	cancel()
	<-done
}

func (c *chaos) relay(name string, dead chan struct{}) *relay.Relay {
	c.turn.Lock()
	opened, err := sqlstore.Open(context.Background(), c.db.DB, c.dialect, sqlstore.Options{})
	c.turn.Unlock()
	if err != nil {
		c.t.Error(err)
	}
	var store storage.Store = &inTurn{Store: opened, c: c, dead: dead}
	if c.wrap != nil {
		store = c.wrap(store)
	}
	store = c.tracer.wrap(name, store)
	sink := func(of string, order sinks.Order) relay.SinkOptions {
		options := relay.SinkOptions{
			Sink: &chaosSink{c, of, name, dead, order}, Batch: 1 + c.pick(8), Buffer: 4 + c.pick(30), Workers: 1 + c.pick(3),
			Timeout: 2 * time.Second, MaxAttempts: -1, BreakerThreshold: 2 + c.pick(4), ParkRateLimit: -1,
			Backoff:        relay.Backoff{Min: 50 * time.Millisecond, Max: 400 * time.Millisecond},
			BreakerBackoff: relay.Backoff{Min: 50 * time.Millisecond, Max: 400 * time.Millisecond},
		}
		if c.holds {
			options.OnPark = relay.HoldKey
		}
		return options
	}
	r, err := relay.New(store, relay.Options{
		Name: name, Lease: chaosLease, DrainTimeout: chaosDrain, Poll: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]relay.SinkOptions{"a": sink("a", sinks.OrderNone), "b": sink("b", sinks.OrderPrefix), "c": sink("c", sinks.OrderPrefix)},
		Routes: []relay.Route{
			{Prefix: "a.", Sink: "a"}, {Topic: "a.2", Sink: "a", ExpireAfter: chaosExpireAfter, OnExpire: relay.DiscardExpired},
			{Topic: "b.1", Sink: "b"}, {Prefix: "c.", Sink: "c", OnExpire: relay.DiscardExpired},
		},
	})
	if err != nil {
		c.t.Error(err)
	}
	if c.pick(2) == 0 {
		r.KeepBlockedKeys(c.pick(3))
	}
	return r
}

// chaosSink is a sink that is slow, fails and rejects messages, and loses answers.
type chaosSink struct {
	c     *chaos
	name  string
	relay string
	dead  chan struct{}
	order sinks.Order
}

func (s *chaosSink) Order() sinks.Order          { return s.order }
func (s *chaosSink) Close(context.Context) error { return nil }
func (s *chaosSink) Open(context.Context) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.downAs.Result == sinks.Unavailable && time.Now().Before(s.c.down[s.name]) {
		return errors.New("down")
	}
	return nil
}

func (s *chaosSink) Send(ctx context.Context, batch []sinks.Message) (outcomes []sinks.Outcome) {
	s.c.tracer.sends(s.relay, s.name, batch)
	defer func() { s.c.tracer.answered(s.relay, s.name, batch, outcomes) }()
	failed := map[string]bool{}
	for _, m := range batch {
		time.Sleep(s.c.span(30 * time.Millisecond))
		o := sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, "")
		if ctx.Err() == nil && !isClosed(s.dead) && !failed[m.Key] {
			o = s.receive(m)
		}
		outcomes = append(outcomes, o)
		failed[m.Key] = m.Key != "" && o.Result != sinks.Delivered
	}
	return outcomes
}

// receive accepts or refuses a message. It records the arrival under the lock, so that arrivals are in order.
func (s *chaosSink) receive(m sinks.Message) (o sinks.Outcome) {
	c, number := s.c, numberOf(m.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	down := time.Now().Before(c.down[s.name])
	defer func() { c.tracer.arrived(s.relay, m, o, down) }()
	of := c.messages[number]
	if of == nil {
		c.problems = append(c.problems, fmt.Sprintf("message %d was sent but never committed", number))
		return sinks.Ok("")
	}
	fate := c.random.IntN(100)
	switch {
	case down:
		return c.downAs
	case c.calm:
	case number%11 == 0 && !of.mended:
		of.refused = true
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "poison")
	case number%13 == 0 && of.failures < 3:
		of.failures++
		return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "fails three times")
	case fate < 4:
		return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "try again")
	case fate >= 96:
		return sinks.Postpone(sinks.ReasonBusy, "later", time.Duration(fate)*time.Millisecond)
	}
	if c.events++; of.delivered == 0 {
		of.delivered = c.events
	}
	if fate < 6 && !c.calm {
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the answer was lost")
	}
	return sinks.Ok("")
}
