package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox/internal/handle"
)

// Pgx makes of a pgx.Tx what [Writer.Write] and package inbox take; for pgx
// without database/sql:
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
// What it makes of a *pgx.Conn or *pgxpool.Pool is for [WithoutTransaction]. Go infers Tag, which is a pgconn.CommandTag: this package doesn't
// import pgx, so that it needs nothing but the standard library.
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

// pgxPool is an Execer of a pgx connection or pool.
type pgxPool struct {
	execer
	name string
}

// BeginTx is what tells that it is no transaction.
func (pgxPool) BeginTx() {}

// PgxBatch makes of a *pgx.Batch what [Writer.Write] takes. The messages'
// statements are queued, and sent together with the others in the batch. Messages
// that break a rule are refused by Write, and nothing is queued; what the database
// has to say comes with the batch's results; so it is nothing for [Writer.Cancel] and
// Options.Duplicates, which need an answer at once. Outside a transaction a batch is one
// by itself. Go infers Queued, which is a *pgx.QueuedQuery.
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

// queue is an Execer that runs statements later, and so answers nothing.
type queue struct{ execer }

// execer is an Execer that is a function.
type execer func(ctx context.Context, query string, args []any) (sql.Result, error)

func (e execer) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return e(ctx, query, args)
}
