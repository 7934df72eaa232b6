package rowrelay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

type orderPaid struct {
	Order int `json:"order"`
	Total int `json:"total"`
}

const (
	ordersPaid   outbox.Topic[orderPaid] = "orders.paid"
	ordersBilled outbox.Topic[orderPaid] = "orders.billed"
)

// A handler of a typed topic, with or without a transaction, gets the value that was written. A message whose payload doesn't
// fit the type is parked.
func TestTopicsHaveATypeBothWays(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	app := newApp(t, db, rowrelay.Options{})
	var lock sync.Mutex
	var got []string
	rowrelay.Handle(app, ordersPaid, func(_ context.Context, o orderPaid, m sinks.Message) error {
		lock.Lock()
		defer lock.Unlock()
		got = append(got, fmt.Sprint(m.Topic, m.Key, o))
		return nil
	})
	rowrelay.HandleTx(app, ordersBilled, func(ctx context.Context, tx *sql.Tx, o orderPaid, m sinks.Message) error {
		return app.Write(ctx, tx, ordersPaid.Message(m.Key, orderPaid{o.Order, o.Total + 1})) // a handler can write messages, which are delivered, too
	})
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = app.Write(t.Context(), tx, ordersPaid.Message("a", orderPaid{1, 10}), ordersBilled.Message("b", orderPaid{2, 20}),
		outbox.Message{Topic: string(ordersPaid), Payload: []byte(`{"order":"three"}`)})
	if err = errors.Join(err, tx.Commit()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first drain may end before it reads the message that the handler has written
		if err := app.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got) // messages with different keys are handled in any order
	if want := []string{"orders.paida{1 10}", "orders.paidb{2 21}"}; !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
	var parked string
	if err := db.QueryRow("SELECT last_error FROM outbox_messages WHERE state = 'error'").Scan(&parked); err != nil || !strings.Contains(parked, "the field order of type int") {
		t.Errorf("parked with %q, %v", parked, err)
	}
}

// Write refuses a body that can't be encoded as JSON, and its error has the reason.
func TestABodyThatCantBeWrittenIsRefused(t *testing.T) {
	t.Parallel()
	const odd outbox.Topic[func()] = "odd"
	db := newFile(t)
	app := newApp(t, db, rowrelay.Options{})
	err := app.Write(t.Context(), outbox.WithoutTransaction(db), outbox.Message{Topic: "a"}, odd.Message("", func() {}))
	if !errors.Is(err, outbox.ErrInvalid) || !strings.Contains(err.Error(), "message 1: Payload must be of a type that can be encoded as JSON: json: unsupported type: func()") {
		t.Errorf("Write: %v", err)
	}
}

// Middleware wraps handlers of both kinds, the first one outermost, and may change their errors. A panic passes through it.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	var said []string
	says := func(name string) inproc.Middleware {
		return func(next inproc.Handler) inproc.Handler {
			return func(ctx context.Context, m sinks.Message) error {
				said = append(said, name+" before "+m.Topic)
				err := next(ctx, m)
				said = append(said, fmt.Sprintf("%s after: %v", name, err))
				if err != nil {
					return inproc.Permanent(err)
				}
				return nil
			}
		}
	}
	app := newApp(t, db, rowrelay.Options{
		Middleware: []inproc.Middleware{says("outer"), nil, says("inner")},
		Handlers:   relay.SinkOptions{MaxAttempts: 1, JudgeAloneAfter: relay.JudgeAtOnce},
	})
	app.Handle("a", func(context.Context, sinks.Message) error { return errors.New("no") })
	app.Handle("panics", func(context.Context, sinks.Message) error { panic("oh") })
	app.HandleTx("tx", func(ctx context.Context, tx *sql.Tx, _ sinks.Message) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE effects (id INTEGER)")
		return err
	})
	for topic, want := range map[string][]string{
		"a":      {"outer before a", "inner before a", "inner after: no", "outer after: no"},
		"tx":     {"outer before tx", "inner before tx", "inner after: <nil>", "outer after: <nil>"},
		"panics": {"outer before panics", "inner before panics"},
	} {
		said = nil
		write(t, db, app, topic)
		if err := app.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(said, want) {
			t.Errorf("%s: %q, want %q", topic, said, want)
		}
	}
	for topic, want := range map[string]storage.State{"a": storage.StateError, "panics": storage.StateError, "tx": storage.StateDone} {
		var state storage.State
		if err := db.QueryRow("SELECT state FROM outbox_messages WHERE topic = ?", topic).Scan(&state); err != nil || state != want {
			t.Errorf("%s is %s, %v; want %s", topic, state, err, want)
		}
	}
}

// A drain delivers the messages that are due. It doesn't wait for scheduled messages or for messages that wait for another
// attempt. Drain can be called repeatedly before Run.
func TestDrain(t *testing.T) {
	t.Parallel()
	db := newFile(t)
	app := newApp(t, db, rowrelay.Options{Handlers: relay.SinkOptions{JudgeAloneAfter: relay.JudgeAtOnce}})
	var handled atomic.Int32
	fail := true
	app.Handle("a", func(context.Context, sinks.Message) error { handled.Add(1); return nil })
	app.Handle("fails", func(context.Context, sinks.Message) error {
		if fail {
			return inproc.RetryAfter(errors.New("no"), 1<<40)
		}
		return nil
	})
	for n := range 3 {
		write(t, db, app, "a", "a", "fails")
		if err := app.Drain(t.Context()); err != nil || int(handled.Load()) != 2*(n+1) {
			t.Errorf("drain %d returned %v, and %d messages are handled", n, err, handled.Load())
		}
	}
	write(t, db, app, "typo")
	if err := app.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "topics: typo") {
		t.Errorf("a drain that leaves messages of a topic returned %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := app.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := app.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "Run was called before") {
		t.Errorf("a drain after Run returned %v", err)
	}
	sink := relay.SinkOptions{Sink: inproc.Func(func(context.Context, sinks.Message) error { return nil })}
	with := newApp(t, newFile(t), rowrelay.Options{Relay: relay.Options{Sinks: map[string]relay.SinkOptions{"rest": sink}}})
	if err := with.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := with.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "make a new App") {
		t.Errorf("a second drain, whose sink is closed, returned %v", err)
	}
}
