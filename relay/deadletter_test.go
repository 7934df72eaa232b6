package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
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

// parking returns a sink that rejects the payload "bad", fails the payload "again", and accepts all others.
func parking() *recorder {
	return &recorder{order: sinks.OrderNone, answer: func(m sinks.Message) sinks.Outcome {
		switch string(m.Payload) {
		case "bad":
			return sinks.Fail(sinks.Reject, sinks.ReasonRefused, " 422: no\r\nsuch → order ")
		case "again":
			return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500: "+strings.Repeat("x", 2000))
		}
		return sinks.Ok("")
	}}
}

// withDeadLetters returns options with two sinks. The dead letters of the sink main have the topic "dead", which is routed to
// the sink dead.
func withDeadLetters(claim storage.Claim, main, dead sinks.Sink) relay.Options {
	return relay.Options{
		Claim: claim, Lease: 3 * time.Second,
		Sinks: map[string]relay.SinkOptions{
			"main": {Sink: main, DeadLetter: relay.DeadLetter{Topic: "dead"}, MaxAttempts: 2, BreakerThreshold: -1, JudgeAloneAfter: relay.JudgeAtOnce, ParkRateLimit: -1},
			"dead": {Sink: dead, BreakerThreshold: -1, JudgeAloneAfter: relay.JudgeAtOnce},
		},
		Routes: []relay.Route{{Topic: "dead", Sink: "dead"}, {Topic: "dropped", Sink: "main", OnExpire: relay.DiscardExpired}, {Topic: "*", Sink: "main"}},
	}
}

// deadOf returns the dead letters by the ids of the parked messages that they copy.
func deadOf(t *testing.T, received []sinks.Message) map[string]sinks.Message {
	t.Helper()
	found := map[string]sinks.Message{}
	for _, m := range received {
		id := m.Headers["rowrelay-dead-letter-message-id"]
		if _, twice := found[id]; twice || id == "" {
			t.Errorf("a second dead letter of a message, or one without a message id: %+v", m)
		}
		found[id] = m
	}
	return found
}

type deadLettered struct {
	relay.NoObserver
	sinks chan string
}

func (o deadLettered) DeadLettered(sink string) { o.sinks <- sink }

// Each parked message is also sent as a dead letter, whatever the reason for parking it was. The dead letter has the message's
// headers, and headers that describe the failure. Delivered and discarded messages have no dead letter.
func TestDeadLetters(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		main, dead, seen := parking(), &recorder{}, deadLettered{sinks: make(chan string, 10)}
		began, past := db.Now(), db.Now().Add(-time.Minute)
		own := map[string]string{"traceparent": "00-1", "Rowrelay-Topic": "may be a reason"}
		written := db.Write(
			outbox.Message{Topic: "orders", Key: "a", Payload: []byte("bad"), Priority: 7, Headers: own},
			outbox.Message{Topic: "orders", Key: "b", Payload: []byte("again")},
			outbox.Message{Topic: "orders", Key: "c", Payload: []byte("late"), ExpiresAt: past, Headers: own},
			outbox.Message{Topic: "orders", Key: "a", Payload: []byte("fine")},
			outbox.Message{Topic: "dropped", Payload: []byte("late"), ExpiresAt: past},
			outbox.Message{Topic: "orders", Payload: []byte("bad")},
		)
		o := withDeadLetters(claim, main, dead)
		o.Observer = seen
		_, stop := start(t, db.Store(), o)
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		letters := deadOf(t, dead.all())
		if got := main.ids(); len(letters) != 4 || !slices.Equal(got, written[3:4]) || len(parked(t, db)) != 4 || len(seen.sinks) != 4 {
			t.Errorf("%d dead letters, %d observed, %v parked, and delivered %v", len(letters), len(seen.sinks), parked(t, db), got)
		}
		for i, want := range map[int]struct{ key, payload, reason, problem, attempts string }{
			0: {"a", "bad", "refused", "refused:  422: no  such → order", "1"},
			1: {"b", "again", "exhausted", ("exhausted: server_error: 500: " + strings.Repeat("x", 2000))[:500], "2"},
			2: {"c", "late", "expired", storage.Expired + "since " + past.UTC().Format(time.RFC3339Nano) + ", its expires_at", "0"},
			5: {"", "bad", "refused", "refused:  422: no  such → order", "1"},
		} {
			id := fmt.Sprintf("00000000-0000-7000-8000-%012x", i+1)
			m := letters[id]
			h := maps.Clone(m.Headers)
			created, err := time.Parse(time.RFC3339Nano, h["rowrelay-dead-letter-created-at"])
			at, err2 := time.Parse(time.RFC3339Nano, h["rowrelay-dead-letter-parked-at"])
			if err := errors.Join(err, err2); err != nil || created.Sub(began).Abs() > time.Second || at.Before(began) || at.After(db.Now()) {
				t.Errorf("%d: created at %v, parked at %v, %v", i, created, at, err)
			}
			delete(h, "rowrelay-dead-letter-created-at")
			delete(h, "rowrelay-dead-letter-parked-at")
			wanted := map[string]string{
				"rowrelay-dead-letter-message-id": id, "rowrelay-dead-letter-topic": "orders", "rowrelay-dead-letter-sink": "main",
				"rowrelay-dead-letter-reason": want.reason, "rowrelay-dead-letter-error": want.problem, "rowrelay-dead-letter-attempts": want.attempts,
			}
			if i == 0 || i == 2 {
				wanted["traceparent"] = "00-1"
			}
			if !maps.Equal(h, wanted) {
				t.Errorf("%d: the headers are\n%q, want\n%q", i, h, wanted)
			}
			if m.Topic != "dead" || m.Key != want.key || string(m.Payload) != want.payload || m.ID == id || len(m.ID) != 36 || i == 0 && m.Priority != 7 {
				t.Errorf("%d: %+v", i, m)
			}
		}
	})
}

// Each time a message is parked, one dead letter is written, even if calls fail and the results of settlements are lost.
func TestEachParkWritesOneDeadLetter(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		const count = 40
		main, dead, calls := parking(), &recorder{}, 0
		trouble := func(_ context.Context, op memstore.Op) error {
			if op != memstore.OpSettle {
				return nil
			}
			if calls++; calls%5 < 2 { // of three settlements, one fails, one succeeds, and one is written but its result is lost
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		store := db.Store()
		store.Hooks = memstore.Hooks{Fail: trouble, Lose: trouble}
		for i := range count {
			db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i%5), Payload: []byte("bad")})
		}
		o := withDeadLetters(claim, main, dead)
		o.Lease = time.Hour
		_, stop := start(t, store, o)
		time.Sleep(time.Hour)
		letters := map[string]bool{}
		infos, err := db.Store().List(t.Context(), storage.Filter{Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			if id := info.Message.Headers["rowrelay-dead-letter-message-id"]; id != "" {
				if letters[id] {
					t.Errorf("%s has a second dead letter", id)
				}
				letters[id] = true
			}
		}
		if len(letters) != count || len(parked(t, db)) != count {
			t.Errorf("there are %d dead letters of %d messages, of which %d are parked", len(letters), count, len(parked(t, db)))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A dead letter that is parked gets no dead letter, and the log mentions that.
func TestParkedDeadLetterGetsNoDeadLetter(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		log := &bytes.Buffer{}
		db.Write(outbox.Message{Topic: "orders", Key: "k", Payload: []byte("bad")})
		o := withDeadLetters(claim, parking(), parking())
		last := o.Sinks["dead"]
		last.DeadLetter = relay.DeadLetter{Topic: "more"}
		o.Sinks["dead"], o.Logger = last, slog.New(slog.NewTextHandler(log, nil))
		_, stop := start(t, db.Store(), o)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if left := parked(t, db); len(left) != 2 || len(db.Messages()) != 2 {
			t.Errorf("parked are %v, want the message and its dead letter; the table has %d rows", left, len(db.Messages()))
		}
		for _, want := range []string{"; its dead letter goes to dead", "; it is a dead letter itself, so no dead letter is written for it"} {
			if n := strings.Count(log.String(), want); n != 1 {
				t.Errorf("the log has %d times %q:\n%s", n, want, log)
			}
		}
	})
}

// A parked message that holds its key gets a dead letter, which is delivered while the key is held. When the message is parked
// again, it gets another one. Skipping it writes none.
func TestDeadLettersOfHeldKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, main, dead := memstore.New(), parking(), &recorder{}
		written := db.Write(outbox.Message{Topic: "orders", Key: "k", Payload: []byte("bad")}, outbox.Message{Topic: "orders", Key: "k", Payload: []byte("fine")})
		o := withDeadLetters(storage.ByLanes, main, dead)
		holds := o.Sinks["main"]
		holds.OnPark = relay.HoldKey
		o.Sinks["main"] = holds
		_, stop := start(t, db.Store(), o)
		time.Sleep(time.Minute)
		for i, change := range []func(storage.Operator, context.Context, storage.Filter) (int, error){storage.Operator.Requeue, storage.Operator.Skip} {
			if got := len(dead.all()); got != i+1 || len(main.ids()) > 0 {
				t.Errorf("%d dead letters after %d parks, and %v delivered of a key that is held", got, i+1, main.ids())
			}
			if n, err := change(db.Store(), t.Context(), storage.Filter{}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			time.Sleep(time.Minute)
		}
		if got := main.ids(); len(dead.all()) != 2 || !slices.Equal(got, written[1:]) {
			t.Errorf("%d dead letters, want 2; delivered %v, want %v", len(dead.all()), got, written[1:])
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The dead letters of a key arrive in the order of its messages.
func TestDeadLettersKeepKeyOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const count, keys = 120, 3
		db, main, dead := memstore.New(), parking(), &recorder{order: sinks.OrderPrefix}
		for i := range count {
			db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i%keys), Payload: []byte([]string{"bad", "bad", "again"}[i/keys%3])})
		}
		_, stop := start(t, db.Store(), withDeadLetters(storage.ByLanes, main, dead))
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		last := map[string]string{}
		letters := dead.all()
		for _, m := range letters {
			id := m.Headers["rowrelay-dead-letter-message-id"]
			if id <= last[m.Key] {
				t.Errorf("the dead letter of %s arrived after that of %s", id, last[m.Key])
			}
			last[m.Key] = id
		}
		if len(letters) != count {
			t.Errorf("%d dead letters, want %d", len(letters), count)
		}
	})
}

// If the database can't store the error's text, the dead letter is written without it.
func TestDeadLetterIsWrittenWithoutAnUnwritableError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, dead := memstore.New(), &recorder{}
		store := &choosy{Store: db.Store(), refuses: func(s storage.Settlement) bool {
			return strings.Contains(s.Error, "→") || s.DeadLetter != nil && strings.Contains(s.DeadLetter.Headers, "→")
		}}
		db.Write(outbox.Message{Topic: "orders", Key: "k", Payload: []byte("bad"), Headers: map[string]string{"a": "b"}})
		_, stop := start(t, store, withDeadLetters(storage.ByLanes, parking(), dead))
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		letters := dead.all()
		if len(letters) != 1 || letters[0].Headers["a"] != "b" || !strings.Contains(letters[0].Headers["rowrelay-dead-letter-error"], "refused to store") {
			t.Errorf("%+v", letters)
		}
	})
}

func TestDeadLetterOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		to   relay.DeadLetter
		hold bool
		want string
	}{
		"a topic":                         {to: relay.DeadLetter{Topic: "dead"}},
		"a topic of the sink itself":      {to: relay.DeadLetter{Topic: "orders"}},
		"a sink":                          {to: relay.DeadLetter{Sink: "other"}},
		"a sink, with HoldKey":            {to: relay.DeadLetter{Sink: "other"}, hold: true},
		"both":                            {to: relay.DeadLetter{Topic: "dead", Sink: "other"}, want: `sink "main": dead letter: has a topic and a sink`},
		"a topic without a route":         {to: relay.DeadLetter{Topic: "nowhere"}, want: `no route takes the topic "nowhere"`},
		"a long topic":                    {to: relay.DeadLetter{Topic: strings.Repeat("x", 256)}, want: "at most 255"},
		"a missing sink":                  {to: relay.DeadLetter{Sink: "others"}, want: `there is no sink "others"`},
		"itself":                          {to: relay.DeadLetter{Sink: "main"}, want: "the sink itself"},
		"itself by a topic, with HoldKey": {to: relay.DeadLetter{Topic: "orders"}, hold: true, want: "would wait behind its own parked message"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			main := relay.SinkOptions{Sink: &recorder{}, DeadLetter: test.to}
			if test.hold {
				main.OnPark = relay.HoldKey
			}
			_, err := relay.New(memstore.New().Store(), relay.Options{
				Sinks:  map[string]relay.SinkOptions{"main": main, "other": {Sink: &recorder{}}},
				Routes: []relay.Route{{Topic: "orders", Sink: "main"}, {Prefix: "dea", Sink: "other"}},
			})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// If DeadLetter names a sink instead of a topic, dead letters go to that sink regardless of routes, and keep their topic.
func TestDeadLettersToASink(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		main, dead := parking(), &recorder{}
		o := withDeadLetters(claim, main, dead)
		to := o.Sinks["main"]
		to.DeadLetter = relay.DeadLetter{Sink: "dead"}
		o.Sinks["main"], o.Routes = to, []relay.Route{{Topic: "*", Sink: "main"}}
		for i := range 20 {
			db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i%3), Payload: []byte([]string{"bad", "fine"}[i%2])})
		}
		_, stop := start(t, db.Store(), o)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		letters := deadOf(t, dead.all())
		for _, m := range letters {
			if m.Topic != "orders" || string(m.Payload) != "bad" {
				t.Errorf("%+v", m)
			}
		}
		if len(letters) != 10 || len(main.ids()) != 10 || len(parked(t, db)) != 10 {
			t.Errorf("%d dead letters, %d delivered, %d parked, want 10 each", len(letters), len(main.ids()), len(parked(t, db)))
		}
	})
}

// If several sinks need a message, each sink that parks it writes its own dead letter, and the other sinks get the message.
func TestDeadLettersOfSeveralSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const count = 30
		db, a, b, c, dead := memstore.New(), parking(), parking(), &recorder{}, &recorder{}
		o := withDeadLetters(storage.ByLanes, a, dead)
		o.Sinks["other"], o.Sinks["all"] = o.Sinks["main"], o.Sinks["main"]
		for name, sink := range map[string]sinks.Sink{"other": b, "all": c} {
			to := o.Sinks[name]
			to.Sink = sink
			o.Sinks[name] = to
		}
		o.Routes = []relay.Route{{Topic: "dead", Sink: "dead"}, {Topic: "orders", Sinks: []string{"main", "other", "all"}}}
		for i := range count {
			db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i%4), Payload: []byte([]string{"bad", "fine", "again"}[i%3])})
		}
		_, stop := start(t, db.Store(), o)
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		of := map[string]int{}
		for _, m := range dead.all() {
			of[m.Headers["rowrelay-dead-letter-sink"]+" "+m.Headers["rowrelay-dead-letter-message-id"]]++
		}
		for what, n := range of {
			if n != 1 {
				t.Errorf("%s has %d dead letters", what, n)
			}
		}
		if len(of) != 2*count*2/3 || len(c.all()) != count || len(a.all()) != count/3 || len(b.all()) != count/3 {
			t.Errorf("%d dead letters; %d, %d and %d were delivered", len(of), len(a.all()), len(b.all()), len(c.all()))
		}
	})
}

// A drain delivers the dead letters that it writes, even if they are committed long after everything else was delivered.
func TestDrainDeliversDeadLetters(t *testing.T) {
	bothClaims(t, func(t *testing.T, claim storage.Claim, db *memstore.DB) {
		store, dead := db.Store(), &recorder{}
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpSettleLocked {
				time.Sleep(time.Minute)
			}
			return nil
		}
		db.Write(outbox.Message{Topic: "orders", Key: "k", Payload: []byte("bad")})
		o := withDeadLetters(claim, parking(), dead)
		o.Drain, o.Lease, o.Logger = true, time.Hour, slog.New(slog.DiscardHandler)
		r, err := relay.New(store, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); err != nil || len(dead.all()) != 1 {
			t.Errorf("%d dead letters were delivered, %v", len(dead.all()), err)
		}
	})
}
