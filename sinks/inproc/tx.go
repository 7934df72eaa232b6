package inproc

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/sinks"
)

// TxHandler handles one message inside the relay's transaction. What it writes
// with tx is committed together with the mark that the message is delivered: it
// happens exactly once. Effects elsewhere (a request, a mail) still may happen
// more than once. It must not commit or roll back, and must use nothing but tx
// for the writes that belong to the message.
type TxHandler func(ctx context.Context, tx *sql.Tx, m sinks.Message) error

// TxSink calls a handler inside the transaction that marks the message. It
// needs a relay over a SQL store, and writes go to the database of the
// messages. Its methods may be called concurrently.
type TxSink struct {
	handler TxHandler
}

var _ sinks.TxSink = (*TxSink)(nil)

// Tx returns a sink that calls a handler inside the relay's transaction. Without one
// it returns nil, which relay.New refuses.
func Tx(handler TxHandler) *TxSink {
	if handler == nil {
		return nil
	}
	return &TxSink{handler: handler}
}

// Open does nothing.
func (s *TxSink) Open(context.Context) error { return nil }

// Close does nothing.
func (s *TxSink) Close(context.Context) error { return nil }

// HandleTx calls the handler. A panic is a retry.
func (s *TxSink) HandleTx(ctx context.Context, tx *sql.Tx, m sinks.Message) sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.Cancelled()
	}
	return outcomeOf(ctx, recovered(func() error { return s.handler(ctx, tx, m) }))
}

// Send delivers nothing: without the relay's transaction the promise of this
// sink can't be kept.
func (s *TxSink) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConfig,
		"this handler runs in the transaction that marks its messages: use it with a relay over a SQL store"))
}
