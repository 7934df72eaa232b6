// Package rowrelaytest provides an outbox table in memory, for tests of programs that write
// and handle messages. In a testing/synctest bubble, back-offs of minutes take no time.
//
// To test code that only writes, use outbox/outboxtest. To test a custom sink, use
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

// Outbox is an outbox table in memory. Create it with NewOutbox. Its methods may be called concurrently.
type Outbox struct{ db *memstore.DB }

// NewOutbox returns an empty outbox.
func NewOutbox() *Outbox { return &Outbox{memstore.New()} }

// Write checks the messages as an [outbox.Writer] without options does, and commits
// them immediately. It ignores tx, which may be nil. An Outbox can replace a Writer in
// code that takes an interface.
func (o *Outbox) Write(ctx context.Context, tx outbox.Execer, messages ...outbox.Message) error {
	if err := new(outboxtest.Recorder).Write(ctx, tx, messages...); err != nil {
		return err
	}
	o.db.Write(messages...)
	return nil
}

// Cancel deletes scheduled messages immediately, and returns the ids of the deleted
// messages, as [outbox.Writer.Cancel] does. It ignores tx, which may be nil.
func (o *Outbox) Cancel(ctx context.Context, tx outbox.Execer, messageIDs ...string) (cancelled []string, err error) {
	if _, err := new(outboxtest.Recorder).Cancel(ctx, tx, messageIDs...); err != nil {
		return nil, err
	}
	return o.db.Cancel(outbox.CancelAhead, messageIDs...), nil
}

// Deliver passes the messages that are due to the handlers of their topics, one message
// at a time, and returns when no message is due. A message whose handler returns an
// error waits for its back-off; call Deliver again later to retry it. A topic without a
// handler fails the test.
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
		Poll:   time.Millisecond, // short, because a drain reads until two consecutive polls are empty
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

// Messages returns all messages in the order in which they were written, including
// delivered and parked ones.
func (o *Outbox) Messages(tb testing.TB) []storage.Info {
	tb.Helper()
	all, err := o.Store().List(tb.Context(), storage.Filter{Limit: 1 << 30})
	if err != nil {
		tb.Fatalf("list the messages: %v", err)
	}
	return all
}

// Store returns a new store of the table, for relay.New or relay.NewConsumer. Each relay
// needs a separate store.
func (o *Outbox) Store() interface {
	storage.Store
	storage.Operator
} {
	return o.db.Store()
}
