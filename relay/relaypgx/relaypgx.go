// Package relaypgx makes a relay on PostgreSQL faster with features of pgx that database/sql lacks: a [Listener] wakes
// the relay by NOTIFY, and a [Reader] reads the relay's pages at a lower cost.
package relaypgx

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// ListenerOptions configure a Listener.
type ListenerOptions struct {
	// Table is the outbox table's name, with or without a schema. It must be the relay's
	// table: rowrelay.New refuses a listener with another table, but relay.New can't check it.
	// Defaults to "outbox".
	Table string

	// Ping is how long the listener waits for a notification before it tests the connection. Defaults to 30 s.
	Ping time.Duration

	// Patience is the time limit for connecting, for the answer to a ping, and for receiving the notification that the listener
	// sends to itself at its start. Defaults to 5 s.
	Patience time.Duration

	// Connection returns the current connection string. Set it if the login can change. The listener calls it each time before
	// it connects. By default the listener uses the string that was passed to NewListener.
	Connection func(ctx context.Context) (string, error)
}

// ErrDeaf is the error of Listen if notifications do not arrive. The relay then only polls.
var ErrDeaf = errors.New("the connection receives no notifications because it goes through a pooler in transaction mode: give the listener the server's own address, or turn the listener off")

// Listener wakes a relay by PostgreSQL's NOTIFY, over a separate connection. It listens on one
// channel. It implements relay.Listener; only one goroutine at a time may call Listen.
type Listener struct {
	config  *pgx.ConnConfig
	table   dialect.Table
	options ListenerOptions
}

var _ relay.Listener = (*Listener)(nil)

// NewListener parses the connection string as pgx.ParseConfig does. It does not connect.
func NewListener(connection string, options ListenerOptions) (*Listener, error) {
	config, err := pgx.ParseConfig(connection)
	if err != nil {
		return nil, err // pgx leaves the password out of the error
	}
	l := &Listener{config: config, options: options}
	if l.table, err = dialect.ParseTable(cmp.Or(options.Table, dialect.DefaultTable)); err != nil {
		return nil, err
	}
	if options.Ping <= 0 {
		l.options.Ping = 30 * time.Second
	}
	if options.Patience <= 0 {
		l.options.Patience = 5 * time.Second
	}
	return l, nil
}

// Table returns the name of the table for which the Listener listens. It returns "" if the Listener is nil or empty.
func (l *Listener) Table() string {
	if l == nil {
		return ""
	}
	return l.table.String()
}

// Listen implements relay.Listener. It connects, verifies that notifications arrive, and calls wake for each notification. If
// no notification arrives within ListenerOptions.Ping, it tests the connection. Tables in other schemas may share the channel, so
// the payload of a notification is the OID of the table that was written to. Listen ignores notifications with the OID of another
// table. A notification without an OID is meant for all listeners.
func (l *Listener) Listen(ctx context.Context, wake func()) (err error) {
	if l == nil || l.table.Channel == "" {
		return errors.New("the Listener is nil or empty: use what NewListener returned, after checking its error")
	}
	defer func() {
		switch {
		case ctx.Err() != nil: // the caller has ended the context
			err = nil
		case err != nil:
			err = fmt.Errorf("listen on %s: %w", l.table.Channel, err)
		}
	}()
	conn, hangUp, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp()
	soon, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	if _, err := conn.Exec(soon, "LISTEN "+pgx.Identifier{l.table.Channel}.Sanitize()); err != nil {
		return err
	}
	test, own := selfTest+rand.Text(), ""
	if own, err = l.notify(ctx, test); err != nil {
		return err
	}
	for heard := ""; heard != test; {
		note, err := conn.WaitForNotification(soon)
		switch {
		case err != nil && context.Cause(soon) == context.DeadlineExceeded:
			return ErrDeaf
		case err != nil:
			return err
		}
		heard = note.Payload
	}
	wake() // for messages that were written before the connection listened
	for {
		quiet, cancel := context.WithTimeout(ctx, l.options.Ping)
		note, err := conn.WaitForNotification(quiet)
		wasQuiet := quiet.Err() != nil
		cancel()
		switch {
		case err == nil:
			if note.Payload == own || !isOID(note.Payload) && !strings.HasPrefix(note.Payload, selfTest) {
				wake()
			}
			continue
		case wasQuiet && ctx.Err() == nil:
			ping, cancel := context.WithTimeout(ctx, l.options.Patience)
			var readOnly string
			err = conn.QueryRow(ping, "SHOW transaction_read_only").Scan(&readOnly)
			cancel()
			if readOnly == "on" { // after a switchover, this server sends no more notifications
				err = errors.New("the server is read-only, as a standby is")
			}
		}
		if err != nil {
			return err
		}
	}
}

// connect opens a connection and returns it with a function that closes it.
func (l *Listener) connect(ctx context.Context) (conn *pgx.Conn, hangUp func(), err error) {
	config := l.config.Copy()
	if l.options.Connection != nil {
		current, err := l.options.Connection(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("get the connection string: %w", err)
		}
		if config, err = pgx.ParseConfig(current); err != nil {
			return nil, nil, err // pgx leaves the password out of the error
		}
	}
	dial, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	if conn, err = pgx.ConnectConfig(dial, config); err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	return conn, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}, nil
}

// notify sends a notification over a new connection, and returns the table's OID. The listening connection can't
// send its own test notification: the server sends a connection's own notifications along with its reply, so they arrive even
// through a pooler that drops the notifications of other connections.
func (l *Listener) notify(ctx context.Context, payload string) (number string, err error) {
	conn, hangUp, err := l.connect(ctx)
	if err != nil {
		return "", err
	}
	defer hangUp()
	soon, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	err = conn.QueryRow(soon, "SELECT '"+l.table.Pending+"'::regclass::oid::text, pg_notify($1, $2)::text", l.table.Channel, payload).Scan(&number, nil)
	return number, err
}

// selfTest is the prefix of the payload that a listener sends to itself.
const selfTest = "listening:"

func isOID(payload string) bool {
	return payload != "" && strings.Trim(payload, "0123456789") == ""
}

// Reader reads a relay's pages directly through pgx. With database/sql, each value of each row becomes an interface and is
// converted once more. That costs a fifth to a quarter of the time that a relay's process spends on a message.
//
// Reader uses the connections of a pool whose driver is pgx/v5/stdlib. The store falls back to database/sql if the pool has
// another driver or a wrapped one, or if pgx runs in the modes exec or simple_protocol, whose results are text. Several stores
// may share a Reader.
type Reader struct{}

var _ backend.Reader = Reader{}

// Read is called by package sqlstore. Other modules can't call it, because a type of its arguments is internal. It requests
// all values in PostgreSQL's binary formats. If a connection of the pool turns out to be lost before anything was sent over
// it, Read tries again. Like database/sql, it makes at most three attempts.
func (Reader) Read(ctx context.Context, db *sql.DB, query string, args []any, take backend.TakeLine) (known bool, err error) {
	args = append([]any{pgx.QueryResultFormats{pgx.BinaryFormatCode}}, args...)
	for try := 1; ; try++ {
		pooled, err := db.Conn(ctx)
		if err == nil {
			err = pooled.Raw(func(driver any) error {
				conn, ok := driver.(*stdlib.Conn)
				if !ok {
					return nil
				}
				rows, err := conn.Conn().Query(ctx, query, args...)
				if err != nil {
					return err
				}
				defer rows.Close()
				var line line
				for more := true; more && rows.Next(); {
					known = known || slices.EqualFunc(rows.FieldDescriptions(), types[:], func(field pgconn.FieldDescription, types []uint32) bool {
						return field.Format == pgx.BinaryFormatCode && slices.Contains(types, field.DataTypeOID)
					})
					if !known {
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
			_ = pooled.Close()
		}
		const tries = 3
		if err == nil || known || try == tries || !pgconn.SafeToRetry(err) {
			return known, err
		}
	}
}

// The columns of each row of the result: a text about the server and the snapshot (backend.FirstLine), followed by the columns of
// an outbox row.
const (
	text = iota
	id
	lane
	messageID
	topic
	key
	sinks
	payload
	headers
	availableAt
	expiresAt
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

// types lists the types that each column may have.
var types = [columns][]uint32{
	text: texts, id: whole, lane: whole, messageID: texts, topic: texts, key: texts, sinks: texts, payload: bytea, headers: texts,
	availableAt: times, expiresAt: times, priority: whole, attempts: whole, crashes: whole, createdAt: times, flags: whole,
}

// line is one decoded row of a query's result: the text about the server and the snapshot, and the columns of an outbox row. Each
// call of the method `read` overwrites it with the next row of the result.
type line struct {
	text    []byte
	row     backend.Columns
	scratch []byte
}

// read reads the values of a line. Each value is in the binary format that the send function of its type returns.
func (l *line) read(values [][]byte) (err error) {
	l.text = values[text]
	l.row.Payload, l.row.Malformed = bytes.Clone(values[payload]), ""
	if string(values[topic]) != l.row.Topic { // most rows have the same topic as the previous row, so they share its string
		l.row.Topic = string(values[topic])
	}
	// The other texts of a row share one string, because they are kept and dropped together.
	l.scratch = append(append(append(append(l.scratch[:0], values[messageID]...), values[key]...), values[sinks]...), values[headers]...)
	all, end := string(l.scratch), len(values[messageID])
	l.row.MessageID, all = all[:end], all[end:]
	l.row.Key, all = all[:len(values[key])], all[len(values[key]):]
	l.row.Sinks, l.row.Headers = all[:len(values[sinks])], all[len(values[sinks]):]

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
	moment := func(column int, name string) (at time.Time) {
		if err == nil {
			if at, err = moment(values[column]); errors.Is(err, errInfinite) { // only this message is malformed, so the read continues
				l.row.Malformed, err = "the column "+name+" can't be read: "+err.Error(), nil
			}
		}
		return at
	}
	l.row.AvailableAt, l.row.ExpiresAt, l.row.CreatedAt = moment(availableAt, "available_at"), moment(expiresAt, "expires_at"), moment(createdAt, "created_at")
	return err
}

// integer reads a smallint, an int or a bigint. It returns 0 for NULL.
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
		return 0, fmt.Errorf("a number has %d bytes, want 2, 4 or 8", len(value))
	}
}

// epoch is the time from which PostgreSQL counts timestamps.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

var errInfinite = errors.New("it is infinite")

// moment reads a timestamptz, which is the number of microseconds since [epoch]. The lowest and the highest int64 stand for
// -infinity and infinity. For NULL, moment returns the zero time.
func moment(value []byte) (time.Time, error) {
	if value == nil {
		return time.Time{}, nil
	}
	micros, err := integer(value)
	switch {
	case err != nil:
	case len(value) != 8:
		err = fmt.Errorf("read a time of %d bytes", len(value))
	case micros == math.MinInt64 || micros == math.MaxInt64:
		return time.Time{}, errInfinite
	}
	return time.Unix(epoch+micros/1e6, micros%1e6*1000).UTC(), err
}
