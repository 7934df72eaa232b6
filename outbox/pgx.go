package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox/internal/handle"
)

// Pgx converts a pgx.Tx to an [Execer] for a [Writer] and for package inbox, in programs
// that use pgx without database/sql:
//
//	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{})
//	…
//	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "UPDATE orders SET …"); err != nil {
//			return err
//		}
//		return writer.Write(ctx, outbox.Pgx(tx), outbox.Message{Topic: "orders.paid", Key: "order-42"})
//	})
//
// Pgx also converts a *pgx.Conn or a *pgxpool.Pool. A Writer accepts the result only if it is
// wrapped by [WithoutTransaction]. Go infers Tag, which is pgconn.CommandTag. Tag is a type
// parameter because this package imports only the standard library.
func Pgx[Tag interface{ RowsAffected() int64 }](tx interface {
	Exec(ctx context.Context, query string, args ...any) (Tag, error)
}) Execer {
	if handle.IsNil(tx) {
		return nil
	}
	run := execer(func(ctx context.Context, query string, args []any) (sql.Result, error) {
		tag, err := tx.Exec(ctx, query, args...)
		return driver.RowsAffected(tag.RowsAffected()), err
	})
	if handle.Begins(tx) {
		return pgxPool{run, fmt.Sprintf("%T", tx)}
	}
	return run
}

// pgxPool is the Execer for a pgx connection or pool.
type pgxPool struct {
	execer
	name string
}

// BeginTx is never called. It makes handle.Begins return true, because the handle is not a
// transaction.
func (pgxPool) BeginTx() {}

// PgxBatch converts a *pgx.Batch to an [Execer] for [Writer.Write]. Write queues its
// statements in the batch, and pgx sends them with the batch's other statements. If a
// message is invalid, Write returns the error and queues nothing. Errors of the database
// are in the batch's results. [Writer.Cancel] and Options.Duplicates need the
// result of each statement immediately, so they refuse a batch. A batch that is sent
// outside a transaction runs in its own transaction. Go infers Queued, which is *pgx.QueuedQuery.
func PgxBatch[Queued any](batch interface {
	Queue(query string, args ...any) Queued
}) Execer {
	if handle.IsNil(batch) {
		return nil
	}
	return queue{func(_ context.Context, query string, args []any) (sql.Result, error) {
		batch.Queue(query, args...)
		return driver.RowsAffected(0), nil
	}}
}

// queue is an Execer that only queues statements, so it always returns a result of 0 rows.
type queue struct{ execer }

// execer makes a function an Execer.
type execer func(ctx context.Context, query string, args []any) (sql.Result, error)

func (e execer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return e(ctx, query, args)
}
