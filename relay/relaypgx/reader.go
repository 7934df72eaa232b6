// Package relaypgx is what a relay on PostgreSQL can have of pgx beyond
// database/sql: [Reader] reads its pages at less cost, and [Listener] wakes it by
// NOTIFY.
package relaypgx

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Reader reads a relay's pages through pgx itself, rather than through
// database/sql, for which each value of each row becomes an interface and is
// converted once more: a fifth to a quarter of what a relay's process costs a
// message.
//
// It reads over the connections of a pool whose driver is pgx/v5/stdlib. With
// another one, one that is wrapped in another, or in pgx's modes exec and
// simple_protocol, whose answers are texts, the store goes on with database/sql. It
// may be shared.
type Reader struct{}

var _ backend.Reader = Reader{}

// tries are those that database/sql has, for a connection of the pool that turns
// out to be lost before anything was sent over it.
const tries = 3

// Read implements [backend.Reader].
func (Reader) Read(ctx context.Context, db *sql.DB, query string, args []any, take backend.TakeLine) (known bool, err error) {
	for range tries {
		if known, err = read(ctx, db, query, args, take); err == nil || known || !pgconn.SafeToRetry(err) {
			break
		}
	}
	return known, err
}

func read(ctx context.Context, db *sql.DB, query string, args []any, take backend.TakeLine) (known bool, err error) {
	pooled, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = pooled.Close() }()
	err = pooled.Raw(func(conn any) error {
		if conn, ok := conn.(*stdlib.Conn); ok {
			known, err = lines(ctx, conn.Conn(), query, args, take)
		}
		return err
	})
	return known, err
}

// lines asks for all values as the server has them, in binary.
func lines(ctx context.Context, conn *pgx.Conn, query string, args []any, take backend.TakeLine) (known bool, err error) {
	rows, err := conn.Query(ctx, query, append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	var line line
	for more := true; more && rows.Next(); {
		if known = known || readable(rows.FieldDescriptions()); !known {
			return false, nil
		}
		if err := line.read(rows.RawValues()); err != nil {
			return true, err
		}
		if more, err = take(line.text, &line.row); err != nil {
			return true, err
		}
	}
	if rows.Close(); rows.Err() != nil {
		return known, rows.Err()
	}
	return true, nil
}
