package inproc

import (
	"context"
	"database/sql"

	"github.com/rowrelay/rowrelay/sinks"
)

// TxHandler handles one message in the relay's transaction, tx. The relay commits the
// handler's writes with tx together with the change that marks the message as delivered,
// so these writes take effect exactly once. Effects elsewhere, such as an HTTP request or
// an email, may still happen more than once. The handler must not commit or roll back, and must use only tx for the
// writes that belong to the message.
type TxHandler func(ctx context.Context, tx *sql.Tx, m sinks.Message) error

// TxSink calls a handler in the transaction that marks the message as delivered. It
// requires a relay with a SQL store, and it can write only to the database that
// contains the messages. Its methods may be called concurrently.
type TxSink struct {
	handler TxHandler
}

var _ sinks.TxSink = (*TxSink)(nil)

// Tx returns a sink that calls a handler in the relay's transaction. If the handler
// is nil, Tx returns nil, which relay.New refuses.
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

// Destination returns "in-process handler".
func (s *TxSink) Destination() string { return "in-process handler" }

// HandleTx calls the handler. A panic counts as a retry.
func (s *TxSink) HandleTx(ctx context.Context, tx *sql.Tx, m sinks.Message) sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.Cancelled()
	}
	return outcomeOf(ctx, recovered(func() error { return s.handler(ctx, tx, m) }))
}

// Send reports that the sink is unavailable, because the handler needs the relay's
// transaction.
func (s *TxSink) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConfig,
		"this handler runs in the transaction that marks its messages as delivered: use it with a relay that has a SQL store"))
}
