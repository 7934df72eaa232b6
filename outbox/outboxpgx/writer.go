// Package outboxpgx is [outbox.Writer] for pgx without database/sql. See package
// outbox for what it promises, and for the options.
//
//	writer, err := outboxpgx.NewWriter()
//	…
//	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "UPDATE orders SET …"); err != nil {
//			return err
//		}
//		return writer.Write(ctx, tx, outbox.Message{Topic: "orders.paid", Key: "order-42", Payload: body})
//	})
package outboxpgx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Execer is a handle that statements can be run on: a pgx.Tx. A *pgx.Conn or
// *pgxpool.Pool does as well for messages that belong to no transaction; each
// statement then commits by itself, and Write normally needs one.
type Execer interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// Writer writes messages to one outbox table. It holds no connection; make one
// at the start of the program and keep it. All methods may be called
// concurrently.
type Writer struct {
	writer *outbox.Writer
}

// NewWriter makes a Writer. Without options it writes to the table "outbox". An
// error names every option that is wrong.
func NewWriter(options ...outbox.Option) (*Writer, error) {
	writer, err := outbox.NewWriter(dialect.Postgres(), options...)
	if err != nil {
		return nil, err
	}
	return &Writer{writer: writer}, nil
}

// Write inserts the messages in their order, in the transaction tx, just as
// [outbox.Writer.Write] does, with the same checks and errors.
func (w *Writer) Write(ctx context.Context, tx Execer, messages ...outbox.Message) error {
	if v := reflect.ValueOf(tx); tx == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return w.writer.Write(ctx, nil, messages...) // which says that it is nil
	}
	return w.writer.Write(ctx, Handle(tx), messages...)
}

// Queue adds the messages' statements to a batch, so that they are sent
// together with the others in it. Messages that break a rule are refused here,
// as by Write, and nothing is queued; what the database has to say comes with
// the batch's results. Outside a transaction a batch is one by itself.
func (w *Writer) Queue(batch *pgx.Batch, messages ...outbox.Message) error {
	if batch == nil {
		return errors.New("queue messages: the batch is nil: give a new(pgx.Batch)")
	}
	return w.writer.Write(context.Background(), batchHandle{batch}, messages...)
}

// Handle makes of a pgx.Tx what packages take that know database/sql only, such
// as outbox/inbox:
//
//	first, err := in.Once(ctx, outboxpgx.Handle(tx), messageID)
func Handle(tx Execer) outbox.Execer { return execHandle{tx} }

type execHandle struct{ tx Execer }

func (h execHandle) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := h.tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

type batchHandle struct{ batch *pgx.Batch }

func (h batchHandle) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	h.batch.Queue(query, args...)
	return driver.RowsAffected(0), nil
}
