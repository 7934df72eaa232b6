package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// toAll returns options with a topic "t" that goes to all of these sinks, and for each sink a topic with the sink's name that
// goes only to that sink.
func toAll(all map[string]sinks.Sink) relay.Options {
	o := relay.Options{Sinks: map[string]relay.SinkOptions{}, Lease: 3 * time.Second}
	route := relay.Route{Topic: "t"}
	for name, sink := range all {
		o.Sinks[name] = relay.SinkOptions{Sink: sink, Buffer: 50, BreakerThreshold: -1, MaxAttempts: 3, JudgeAloneAfter: relay.JudgeAtOnce,
			Backoff: relay.Backoff{Min: time.Second, Max: time.Second}, BreakerBackoff: relay.Backoff{Min: time.Second, Max: time.Second}}
		o.Routes = append(o.Routes, relay.Route{Topic: name, Sink: name})
		route.Sinks = append(route.Sinks, name)
	}
	o.Routes = append(o.Routes, route)
	return o
}

// rowsOf returns each row of the table as its sinks and its state, in the order of ids.
func rowsOf(t *testing.T, db *memstore.DB) (rows []string) {
	t.Helper()
	found, err := db.Store().List(t.Context(), storage.Filter{Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range found {
		rows = append(rows, strings.TrimSpace(info.Sinks+" "+string(info.State)+" "+info.Receipt))
	}
	return rows
}

// lateOpening is a sink whose Open takes the given time.
type lateOpening struct {
	*recorder
	after time.Duration
}

func (l lateOpening) Open(context.Context) error { time.Sleep(l.after); return nil }

// A message that all its sinks deliver within a short time is settled once, even if one sink opens later than the others.
func TestAMessageOfSeveralSinksIsWrittenOnce(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]time.Duration{"open immediately": 0, "one opens later": 30 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := memstore.New()
				answer := func(receipt string) func(sinks.Message) sinks.Outcome {
					return func(sinks.Message) sinks.Outcome { return sinks.Ok(receipt) }
				}
				fast := &recorder{answer: answer("7")}
				slow := &recorder{delay: 20 * time.Millisecond, answer: answer("")}
				other := &recorder{answer: answer("x")}
				_, stop := start(t, db.Store(), toAll(map[string]sinks.Sink{"fast": fast, "slow": slow, "other": lateOpening{other, open}}))
				write(db, "t", "k", 3)
				write(db, "t", "", 3)
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				for _, row := range rowsOf(t, db) {
					if row != "done fast: 7; other: x" {
						t.Errorf("a row is %q", row)
					}
				}
				for name, sink := range map[string]*recorder{"fast": fast, "slow": slow, "other": other} {
					if inOrder(t, sink.received); len(sink.received) != 6 {
						t.Errorf("%s received %d messages", name, len(sink.received))
					}
				}
				for _, c := range db.History() {
					if c.For != "" {
						t.Errorf("row %d was written for some of its sinks", c.ID)
					}
				}
			})
		})
	}
}

// A sink that is down for a long time does not delay the other sinks, and causes no duplicates there. When it recovers, it
// gets all messages in order, even if they are delivered by other relays than those that first read them.
func TestOneOfSeveralSinksIsDown(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"under one relay": false, "under one after the other": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, up, down := memstore.New(), &recorder{}, &breakable{}
				down.broken.Store(true)
				options := toAll(map[string]sinks.Sink{"up": up, "down": down})
				_, stop := start(t, db.Store(), options)
				for round := range 24 {
					write(db, "t", fmt.Sprint("k", round%5), 10) // in all rounds together, more than fit into the buffer of the sink that is down
					time.Sleep(time.Second)
					if n := len(up.all()); n != 10*(round+1) {
						t.Fatalf("round %d: the sink that is up has %d messages, want %d", round, n, 10*(round+1))
					}
					time.Sleep(time.Minute)
					if again {
						if err := stop(); err != nil {
							t.Error(err)
						}
						_, stop = start(t, db.Store(), options)
					}
				}
				for _, row := range rowsOf(t, db) {
					if row != "up done" && row != "down pending" {
						t.Fatalf("a row is %q", row)
					}
				}
				down.broken.Store(false)
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				inOrder(t, up.received)
				inOrder(t, down.received)
				if len(up.received) != 240 || len(down.received) != 240 {
					t.Errorf("the sinks received %d and %d messages, want 240 each", len(up.received), len(down.received))
				}
				if counts := statusOf(t, db); counts[storage.StatePending]+counts[storage.StateRetry] != 0 {
					t.Errorf("left are %v", counts)
				}
			})
		})
	}
}

// Each sink has its own attempts and parked messages. Its keys wait only for its own messages.
func TestAttemptsAndParkingArePerSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, good, bad := memstore.New(), &recorder{}, &recorder{}
		refused := map[int64]int{}
		bad.answer = func(m sinks.Message) sinks.Outcome {
			if m.Sequence == 2 {
				refused[m.Sequence]++
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "bad")
			}
			return sinks.Ok("")
		}
		_, stop := start(t, db.Store(), toAll(map[string]sinks.Sink{"good": good, "bad": bad}))
		write(db, "t", "k", 3)
		write(db, "bad", "k", 1)
		time.Sleep(time.Second)
		if n, m := len(good.all()), len(bad.all()); n != 3 || m != 1 {
			t.Errorf("while one sink waits for another attempt, the sinks received %d and %d messages", n, m)
		}
		time.Sleep(time.Minute)
		got := strings.Join(rowsOf(t, db), ", ")
		if want := "done, bad error, good done, bad done, good done, done"; got != want {
			t.Errorf("the rows are %s, want %s", got, want)
		}
		if refused[2] != 3 || fmt.Sprint(bad.ids()) != "[1 3 4]" || fmt.Sprint(good.ids()) != "[1 2 3]" {
			t.Errorf("the bad sink refused message 2 %d times and received %v; the good sink received %v", refused[2], bad.ids(), good.ids())
		}
		bad.answer = nil
		if n, err := db.Store().Requeue(t.Context(), storage.Filter{Sink: "bad"}); n != 1 || err != nil {
			t.Errorf("requeued %d, %v", n, err)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(good.received) != 3 || fmt.Sprint(bad.ids()) != "[1 3 4 2]" {
			t.Errorf("after the requeue the sinks have received %v and %v", good.ids(), bad.ids())
		}
	})
}

// When the sinks of a topic change, a message that no sink has received goes to the new set of sinks. A message that some
// sinks have received goes to the remaining sinks of the old set, even if the topic no longer has one of them, and not to new
// sinks. Messages for a sink that no longer exists wait, and are reported.
func TestSinksOfATopicChangeWhileMessagesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, a, b, c, alarms := memstore.New(), &breakable{}, &breakable{}, &recorder{}, &alarm{}
		a.broken.Store(true)
		b.broken.Store(true)
		_, stop := start(t, db.Store(), toAll(map[string]sinks.Sink{"a": a, "b": b}))
		write(db, "t", "k", 1) // both sinks are down, so none receives it yet
		time.Sleep(time.Minute)
		b.broken.Store(false)
		time.Sleep(time.Minute)
		if got := strings.Join(rowsOf(t, db), ", "); got != "a pending, b done" {
			t.Errorf("the rows are %s", got)
		}
		b.broken.Store(true)
		time.Sleep(time.Second)
		write(db, "t", "k", 1)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}

		a.broken.Store(false)
		b.broken.Store(false)
		o := toAll(map[string]sinks.Sink{"b": b, "c": c})
		o.Observer = alarms
		_, stop = start(t, db.Store(), o)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if alarms.n.Load() == 0 {
			t.Error("the message of a missing sink was not reported")
		}
		if got := strings.Join(rowsOf(t, db), ", "); got != "a pending, b done, done" {
			t.Errorf("after the topic's sinks changed, the rows are %s", got)
		}

		o = toAll(map[string]sinks.Sink{"c": c})
		o.Sinks["a"] = relay.SinkOptions{Sink: a}
		_, stop = start(t, db.Store(), o)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if fmt.Sprint(a.ids(), b.ids(), c.ids()) != "[1] [1 2] [2]" {
			t.Errorf("the sinks received %v, %v and %v", a.ids(), b.ids(), c.ids())
		}
	})
}

// Each of two transactional handlers of a message marks the row as done for its own sink, once.
func TestHandlersInATransactionAmongSeveralSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, first, second, plain := memstore.New(), &okTx{}, &okTx{}, &recorder{}
		failed := false
		first.answer = func(m sinks.Message) sinks.Outcome {
			if m.Sequence == 5 && !failed {
				failed = true
				return sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "once")
			}
			return sinks.Ok("")
		}
		store := &lostCommit{Store: db.Store()} // the result of the first commit is lost
		_, stop := start(t, store, toAll(map[string]sinks.Sink{"first": first, "second": second, "plain": plain}))
		write(db, "t", "k", 10)
		write(db, "t", "", 10)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(plain.received); n != 20 {
			t.Errorf("the plain sink has %d messages", n)
		}
		if n, m := len(first.received), len(second.received); n+m != 40 && n+m != 41 { // 41: memstore runs handlers outside the transaction that marks the row, so one may run twice
			t.Errorf("the handlers received %d and %d messages", n, m)
		}
		if counts := statusOf(t, db); counts[storage.StatePending]+counts[storage.StateRetry]+counts[storage.StateError] != 0 {
			t.Errorf("left are %v", counts)
		}
	})
}

// A drain ends when all sinks have everything, even if it starts with rows that only some sinks still need.
func TestDrainOfSeveralSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, a, b := memstore.New(), &recorder{}, &recorder{delay: 300 * time.Millisecond}
		write(db, "t", "k", 20)
		write(db, "t", "", 20)
		o := toAll(map[string]sinks.Sink{"a": a, "b": b})
		o.Drain, o.Retention = true, relay.KeepNothing
		r, err := relay.New(db.Store(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if rows := rowsOf(t, db); len(rows) > 0 || len(a.received) != 40 || len(b.received) != 40 {
			t.Errorf("the rows left are %v; the sinks received %d and %d messages", rows, len(a.received), len(b.received))
		}
	})
}

// A scheduled message of several sinks is one row until it is due, and can be cancelled as a whole.
func TestScheduledMessageOfSeveralSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, a, b := memstore.New(), &recorder{}, &breakable{}
		b.broken.Store(true)
		_, stop := start(t, db.Store(), toAll(map[string]sinks.Sink{"a": a, "b": b}))
		const first, second = "00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"
		for _, id := range []string{first, second} {
			db.Write(outbox.Message{ID: id, Topic: "t", Key: id, AvailableAt: time.Now().Add(time.Minute)})
		}
		time.Sleep(30 * time.Second)
		if got := strings.Join(rowsOf(t, db), ", "); got != "scheduled, scheduled" {
			t.Errorf("before they are due, the rows are %s", got)
		}
		if cancelled := db.Cancel(0, first); len(cancelled) != 1 {
			t.Errorf("cancelled %v", cancelled)
		}
		time.Sleep(time.Minute)
		b.broken.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(a.received) != 1 || len(b.received) != 1 {
			t.Errorf("the sinks received %d and %d messages, want 1 each", len(a.received), len(b.received))
		}
		if got := strings.Join(rowsOf(t, db), ", "); got != "a done, b done" {
			t.Errorf("at the end the rows are %s", got)
		}
	})
}

// A retry for one sink of a scheduled message is sent without waiting for the message's other sinks.
func TestRetryOfAScheduledMessageOfSeveralSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, a, b, failed := memstore.New(), &recorder{}, &breakable{}, false
		b.broken.Store(true)
		a.answer = func(sinks.Message) sinks.Outcome {
			if !failed {
				failed = true
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "once")
			}
			return sinks.Ok("")
		}
		_, stop := start(t, db.Store(), toAll(map[string]sinks.Sink{"a": a, "b": b}))
		db.Write(outbox.Message{Topic: "t", Key: "k", AvailableAt: time.Now().Add(time.Minute)})
		time.Sleep(2 * time.Minute)
		if n := len(a.all()); n != 1 {
			t.Errorf("while b is down, a has %d messages, want 1: %v", n, rowsOf(t, db))
		}
		b.broken.Store(false)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(a.received) != 1 || len(b.received) != 1 {
			t.Errorf("the sinks received %d and %d messages, want 1 each", len(a.received), len(b.received))
		}
	})
}

// A message of several sinks may become due while the settlement that defers it is written. It is then deferred, and sent to
// each sink once.
func TestScheduledMessageOfSeveralSinksIsDeferredLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, a, b := memstore.New(), &recorder{}, &recorder{}
		store := db.Store()
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpSettle {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		_, stop := start(t, store, toAll(map[string]sinks.Sink{"a": a, "b": b}))
		tx := db.Begin()
		tx.Insert(outbox.Message{Topic: "a"}) // when this transaction commits, the relay scans for late rows, and so meets the scheduled row again
		db.Write(outbox.Message{Topic: "t", AvailableAt: time.Now().Add(time.Second)})
		time.Sleep(1500 * time.Millisecond)
		tx.Commit()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(a.received) != 2 || len(b.received) != 1 {
			t.Errorf("the sinks received %d and %d messages, want 2 and 1", len(a.received), len(b.received))
		}
	})
}

// The outcomes of a key are written in order, even if one of its messages waits for another sink. So after a crash, only the
// last messages of a key can be sent again.
func TestOutcomesOfAKeyAreWrittenInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, a, b := memstore.New(), &recorder{}, &recorder{delay: 70 * time.Millisecond}
		_, stop := start(t, db.Store(), toAll(map[string]sinks.Sink{"a": a, "b": b}))
		for range 20 {
			write(db, "t", "k", 2)
			write(db, "a", "k", 2)
			time.Sleep(30 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		last, done := int64(0), map[int64]bool{}
		for _, c := range db.History() {
			if c.To != storage.StateDone || done[c.ID] || c.For == "b" {
				continue
			}
			if done[c.ID] = true; c.ID < last {
				t.Errorf("row %d was done at a after row %d", c.ID, last)
			}
			last = c.ID
		}
		if len(a.received) != 80 || len(b.received) != 40 {
			t.Errorf("the sinks received %d and %d messages", len(a.received), len(b.received))
		}
	})
}

// A delivery waits at most 100 ms for other sinks. This time includes the wait behind an earlier message of its key.
func TestDeliveryBehindAnotherWaitsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		o := toAll(map[string]sinks.Sink{"a": &recorder{}, "b": &recorder{delay: 500 * time.Millisecond}})
		for name, sink := range o.Sinks {
			sink.Batch = 1 // so that no delivery waits for others to be written with it (settleLinger)
			o.Sinks[name] = sink
		}
		r, stop := start(t, db.Store(), o)
		write := func(key string, pause time.Duration) {
			write(db, "t", key, 1)
			r.Wake()
			time.Sleep(pause)
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		write("k", 10*time.Millisecond)
		write("k", 80*time.Millisecond)
		write("l", time.Second)
		wrote := map[int64]time.Duration{}
		for _, c := range db.History() {
			if c.For == "a" {
				wrote[c.ID] = c.At.Sub(began)
			}
		}
		for id, want := range map[int64]time.Duration{1: 100 * time.Millisecond, 2: 110 * time.Millisecond, 3: 190 * time.Millisecond} {
			if got := wrote[id]; got < want || got > want+5*time.Millisecond {
				t.Errorf("row %d was written for a after %v, want %v", id, got, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRoutesToSeveralSinks(t *testing.T) {
	t.Parallel()
	all := map[string]relay.SinkOptions{"a": {Sink: &recorder{}}, "b": {Sink: &recorder{}}, "with,comma": {Sink: &recorder{}}, strings.Repeat("x", 500): {Sink: &recorder{}}}
	for name, c := range map[string]struct {
		routes []relay.Route
		claim  storage.Claim
		want   string // in the error; empty: no error
	}{
		"several":                      {routes: []relay.Route{{Topic: "t", Sinks: []string{"a", "b"}}}},
		"by two routes":                {routes: []relay.Route{{Topic: "t", Sink: "a"}, {Topic: "t", Sink: "b"}}},
		"also":                         {routes: []relay.Route{{Topic: "t", Sink: "a"}, {Topic: "*", Sink: "b", Also: true}}},
		"by rows":                      {routes: []relay.Route{{Topic: "t", Sinks: []string{"a", "b"}}}, claim: storage.ByRows, want: "requires a relay that claims by lanes"},
		"also, by rows":                {routes: []relay.Route{{Topic: "t", Sink: "a"}, {Prefix: "t", Sink: "b", Also: true}}, claim: storage.ByRows, want: "requires a relay that claims by lanes"},
		"one sink as a list":           {routes: []relay.Route{{Topic: "t", Sinks: []string{"a"}}}, claim: storage.ByRows},
		"both":                         {routes: []relay.Route{{Topic: "t", Sink: "a", Sinks: []string{"b"}}}, want: "not both"},
		"unknown":                      {routes: []relay.Route{{Topic: "t", Sinks: []string{"a", "c"}}}, want: `there is no sink "c"`},
		"expiry of also":               {routes: []relay.Route{{Topic: "t", Sink: "a", Also: true, ExpireAfter: time.Hour}}, want: "set an expiry"},
		"routes with different expiry": {routes: []relay.Route{{Topic: "t", Sink: "a", ExpireAfter: time.Hour}, {Topic: "t", Sink: "b"}}, want: "two routes with different expiry"},
		"a comma":                      {routes: []relay.Route{{Topic: "t", Sinks: []string{"a", "with,comma"}}}, want: "must not contain commas"},
		"a comma, alone":               {routes: []relay.Route{{Topic: "t", Sink: "with,comma"}}},
		"long names":                   {routes: []relay.Route{{Topic: "t", Sinks: []string{"a", strings.Repeat("x", 500)}}}, want: "at most 400"},
		"a pattern twice":              {routes: []relay.Route{{Pattern: "t.*", Sink: "a"}, {Pattern: "t.*", Sink: "b"}}},
		"a wildcard":                   {routes: []relay.Route{{Topic: "orders.*", Sink: "a"}}, want: `use the prefix "orders."`},
		"an AMQP wildcard":             {routes: []relay.Route{{Topic: "orders.#", Sink: "a"}}, want: `use the prefix "orders."`},
		"all topics":                   {routes: []relay.Route{{Topic: "*", Sink: "a"}}},
		"an invalid pattern":           {routes: []relay.Route{{Pattern: "t(", Sink: "a"}}, want: "pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := relay.New(memstore.New().Store(), relay.Options{Claim: c.claim, Sinks: all, Routes: c.routes})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
