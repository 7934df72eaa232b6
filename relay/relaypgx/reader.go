// Package relaypgx is what a relay on PostgreSQL can have of pgx beyond
// database/sql: [Reader] reads its pages at less cost, and [Listener] wakes it by
// NOTIFY.
package relaypgx

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
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

// read asks once, for all values as the server has them, in binary.
func read(ctx context.Context, db *sql.DB, query string, args []any, take backend.TakeLine) (known bool, err error) {
	pooled, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = pooled.Close() }()
	err = pooled.Raw(func(driver any) error {
		conn, ok := driver.(*stdlib.Conn)
		if !ok {
			return nil
		}
		rows, err := conn.Conn().Query(ctx, query, append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		var line line
		for more := true; more && rows.Next(); {
			if known = known || readable(rows.FieldDescriptions()); !known {
				return nil
			}
			if err := line.read(rows.RawValues()); err != nil {
				return err
			}
			if more, err = take(line.text, &line.row); err != nil {
				return err
			}
		}
		rows.Close()
		known = known || rows.Err() == nil
		return rows.Err()
	})
	return known, err
}

// The columns of a line: a text, and a row as a page has it.
const (
	text = iota
	id
	lane
	messageID
	topic
	key
	payload
	headers
	availableAt
	priority
	attempts
	crashes
	createdAt
	flags
	columns
)

var (
	whole = []uint32{pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID}
	texts = []uint32{pgtype.TextOID, pgtype.VarcharOID}
	bytea = []uint32{pgtype.ByteaOID}
	times = []uint32{pgtype.TimestamptzOID}
)

// types are those that each column may have.
var types = [columns][]uint32{
	text: texts, id: whole, lane: whole, messageID: texts, topic: texts, key: texts, payload: bytea, headers: texts,
	availableAt: times, priority: whole, attempts: whole, crashes: whole, createdAt: times, flags: whole,
}

// readable says whether a line can be read here.
func readable(fields []pgconn.FieldDescription) bool {
	if len(fields) != columns {
		return false
	}
	for i, field := range fields {
		if field.Format != pgx.BinaryFormatCode || !slices.Contains(types[i], field.DataTypeOID) {
			return false
		}
	}
	return true
}

// line reads lines, one after the other.
type line struct {
	text    []byte
	row     backend.Columns
	scratch []byte
}

// read reads values in PostgreSQL's binary formats, each of which is the send
// function's of its type.
func (l *line) read(values [][]byte) (err error) {
	l.text = values[text]
	l.row.Payload = bytes.Clone(values[payload])
	if string(values[topic]) != l.row.Topic { // most rows have the topic of the row before, which is kept once
		l.row.Topic = string(values[topic])
	}
	// The other texts of a row are kept together, as they come and go together.
	l.scratch = append(append(append(l.scratch[:0], values[messageID]...), values[key]...), values[headers]...)
	all, end := string(l.scratch), len(values[messageID])
	l.row.MessageID, all = all[:end], all[end:]
	l.row.Key, l.row.Headers = all[:len(values[key])], all[len(values[key]):]

	whole := func(column int) (n int64) {
		if err == nil {
			n, err = integer(values[column])
		}
		return n
	}
	l.row.ID, l.row.Lane = whole(id), whole(lane)
	l.row.Priority, l.row.Attempts, l.row.Crashes = whole(priority), whole(attempts), whole(crashes)
	if l.row.Flags = backend.HasPayload; values[flags] != nil {
		l.row.Flags = whole(flags)
	}
	if err == nil {
		l.row.AvailableAt, err = moment(values[availableAt])
	}
	if err == nil {
		l.row.CreatedAt, err = moment(values[createdAt])
	}
	return err
}

// integer reads a smallint, an int or a bigint; 0 for NULL.
func integer(value []byte) (int64, error) {
	switch len(value) {
	case 0:
		return 0, nil
	case 2:
		return int64(int16(binary.BigEndian.Uint16(value))), nil
	case 4:
		return int64(int32(binary.BigEndian.Uint32(value))), nil
	case 8:
		return int64(binary.BigEndian.Uint64(value)), nil
	default:
		return 0, fmt.Errorf("read a number of %d bytes", len(value))
	}
}

// epoch is where PostgreSQL begins to count.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// moment reads a timestamptz: microseconds since the epoch, whose least and
// greatest number are infinite; the zero time for NULL.
func moment(value []byte) (time.Time, error) {
	if value == nil {
		return time.Time{}, nil
	}
	micros, err := integer(value)
	if err == nil && (len(value) != 8 || micros == math.MinInt64 || micros == math.MaxInt64) {
		err = fmt.Errorf("read a time of %d bytes, or one that is infinite", len(value))
	}
	return time.Unix(epoch+micros/1e6, micros%1e6*1000).UTC(), err
}
