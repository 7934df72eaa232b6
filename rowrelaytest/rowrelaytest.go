// Package rowrelaytest is an outbox without a database, for tests of programs that
// write and handle messages: a table in memory, and relays on it. Under
// testing/synctest back-offs of minutes take no time.
//
// For code that only writes there is outbox/outboxtest; for a sink of one's own
// sinks/sinktest.
package rowrelaytest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// Outbox is an outbox table in memory, which NewOutbox makes. Its methods may be called concurrently.
type Outbox struct{ db *memstore.DB }

// NewOutbox makes an empty outbox.
func NewOutbox() *Outbox { return &Outbox{memstore.New()} }

// Write checks the messages as an [outbox.Writer] without options does, and commits
// them at once: the transaction isn't used and may be nil. So an Outbox stands in for a
// Writer where code under test takes an interface.
func (o *Outbox) Write(ctx context.Context, tx outbox.Execer, messages ...outbox.Message) error {
	if err := new(outboxtest.Recorder).Write(ctx, tx, messages...); err != nil {
		return err
	}
	o.db.Write(messages...)
	return nil
}

// Cancel deletes scheduled messages at once, as the Cancel of an [outbox.Writer] does; the
// transaction isn't used and may be nil.
func (o *Outbox) Cancel(ctx context.Context, tx outbox.Execer, messageIDs ...string) (cancelled []string, err error) {
	if _, err := new(outboxtest.Recorder).Cancel(ctx, tx, messageIDs...); err != nil {
		return nil, err
	}
	return o.db.Cancel(outbox.CancelAhead, messageIDs...), nil
}

// Deliver hands the messages that are due to the handlers of their topics, each of
// which is called for one message after the other, and returns when none is left that
// could be delivered now. What a handler fails for waits for its back-off; call
// Deliver again, later. A topic without a handler is an error of the test.
func (o *Outbox) Deliver(tb testing.TB, handlers map[string]inproc.Handler) {
	tb.Helper()
	var mux inproc.Mux
	for topic, handler := range handlers {
		if topic == "" || handler == nil {
			tb.Fatalf("deliver the messages: topic %q: give a topic and a function", topic)
		}
		mux.Handle(topic, handler)
	}
	r, err := relay.New(o.Store(), relay.Options{
		Drain:  true,
		Poll:   time.Millisecond, // so that what is there is soon found, and that it is all
		Sinks:  map[string]relay.SinkOptions{"handlers": {Sink: inproc.Func(mux.Serve), JudgeAloneAfter: relay.JudgeAtOnce}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = r.Run(tb.Context())
	}
	if err != nil {
		tb.Errorf("deliver the messages: %v", err)
	}
}

// Messages returns all messages, also those that are delivered or parked, in the
// order in which they were written.
func (o *Outbox) Messages(tb testing.TB) []storage.Info {
	tb.Helper()
	all, err := o.Store().List(tb.Context(), storage.Filter{Limit: 1 << 30})
	if err != nil {
		tb.Fatalf("list the messages: %v", err)
	}
	return all
}

// Store returns a new handle on the table, for relay.New or relay.NewConsumer. Each
// relay needs one of its own.
func (o *Outbox) Store() interface {
	storage.Store
	storage.Operator
} {
	return o.db.Store()
}
