package sinks

import (
	"context"
	"database/sql"
)

// TxSink is a Sink in the relay's own process whose writes go to the same
// database as the messages. A relay over a SQL store calls HandleTx instead of
// Send, inside a transaction that the relay owns and in which it has already
// marked the message as delivered: where the outcome is [Delivered] it commits,
// and so the effect of the handler and the mark happen together, exactly once;
// otherwise it rolls both back and settles the outcome by itself.
//
// HandleTx must not commit, roll back or keep the transaction. It may be called
// concurrently, for one message of a key at a time.
//
// Send is for a relay that has no such transaction to offer. It delivers
// nothing: its outcomes are [Unavailable] with [ReasonConfig].
type TxSink interface {
	Sink
	HandleTx(ctx context.Context, tx *sql.Tx, m Message) Outcome
}
