package relay

import (
	"context"
	"database/sql"
	"errors"

	"github.com/rowrelay/rowrelay/sinks"
)

// handleAll runs the handler for each message in a transaction of its own.
func (e *engine) handleAll(ctx context.Context, o *outlet, batch []*item) ([]sinks.Outcome, []bool) {
	outcomes, settled := make([]sinks.Outcome, len(batch)), make([]bool, len(batch))
	for i, it := range batch {
		outcomes[i], settled[i] = e.handle(ctx, o, it)
	}
	return outcomes, settled
}

// errNotDelivered rolls a handler's transaction back.
var errNotDelivered = errors.New("the handler did not deliver")

func (e *engine) handle(ctx context.Context, o *outlet, it *item) (outcome sinks.Outcome, settled bool) {
	if ctx.Err() != nil {
		return sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""), false
	}
	ran := false
	err := e.store.(TxStore).HandleTx(ctx, e.options.Name, e.keeps(), it.settlement(StateDone), func(ctx context.Context, tx *sql.Tx) error {
		ran = true
		outcome = handleSafely(ctx, o.tx, tx, it.message())
		if outcome.Result != sinks.Delivered {
			return errNotDelivered
		}
		return nil
	})
	switch {
	case err == nil:
		return outcome, true
	case errors.Is(err, errNotDelivered):
		return outcome, false
	case errors.Is(err, ErrFenced):
		return sinks.Ok(""), false // settled in vain, and so counted, as any other
	case ran:
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "commit the handler's transaction: "+err.Error()), false
	default:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "begin the handler's transaction: "+err.Error()), false
	}
}

// handleSafely runs the handler; a panic must not leave the transaction open.
func handleSafely(ctx context.Context, sink sinks.TxSink, tx *sql.Tx, m sinks.Message) (outcome sinks.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			outcome = sinks.Fail(sinks.Retry, sinks.ReasonPanic, "the handler panicked: "+sinks.DescribePanic(p, "/relay.handleSafely"))
		}
	}()
	return sink.HandleTx(ctx, tx, m)
}
