package relaypgx

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// ListenerOptions say what is listened for.
type ListenerOptions struct {
	// Table is the outbox table's name, with or without a schema. Defaults to
	// "outbox".
	Table string

	// Ping is how long it may be quiet before the connection is tried. Defaults
	// to 30 s.
	Ping time.Duration

	// Patience bounds the time to connect, to answer a ping, and to hear the
	// notification that the listener sends to itself at its start. Defaults to
	// 5 s.
	Patience time.Duration
}

// ErrDeaf means that notifications don't arrive. The relay polls then.
var ErrDeaf = errors.New("the connection hears no notifications; a pooler in transaction mode sits in between: give the listener the server's own address, or turn it off")

// Listener wakes a relay by PostgreSQL's NOTIFY, over a connection of its own. It
// listens on one channel. It implements relay.Listener; one goroutine
// at a time calls Listen.
type Listener struct {
	config  *pgx.ConnConfig
	table   dialect.Table
	options ListenerOptions
}

var _ relay.Listener = (*Listener)(nil)

// NewListener reads the connection string, as pgx.ParseConfig takes it. It doesn't
// connect.
func NewListener(connection string, options ListenerOptions) (*Listener, error) {
	config, err := pgx.ParseConfig(connection)
	if err != nil {
		return nil, err // pgx leaves the password out
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

// Listen implements relay.Listener.
func (l *Listener) Listen(ctx context.Context, wake func()) error {
	dial, cancel := context.WithTimeout(ctx, l.options.Patience)
	conn, err := pgx.ConnectConfig(dial, l.config.Copy())
	cancel()
	if err != nil {
		return ended(ctx, fmt.Errorf("connect to listen: %w", err))
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	own, err := l.begin(ctx, conn)
	if err != nil {
		return ended(ctx, fmt.Errorf("listen on %s: %w", l.table.Channel, err))
	}
	wake() // for what came before
	for {
		heard, err := l.wait(ctx, conn, own)
		if err != nil {
			return ended(ctx, fmt.Errorf("listen on %s: %w", l.table.Channel, err))
		}
		if heard {
			wake()
		}
	}
}

// ended turns an error into nil if it is only that the context has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// begin listens, makes sure that it hears, and returns the payload by which the
// table's own writers are known: other schemas' tables may share the channel.
func (l *Listener) begin(ctx context.Context, conn *pgx.Conn) (own string, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.table.Channel}.Sanitize()); err != nil {
		return "", err
	}
	test := selfTest + rand.Text()
	if err := conn.QueryRow(ctx, "SELECT '"+l.table.Hot+"'::regclass::oid::text, pg_notify($1, $2)::text", l.table.Channel, test).Scan(&own, nil); err != nil {
		return "", err
	}
	for {
		note, err := conn.WaitForNotification(ctx)
		switch {
		case err != nil && ctx.Err() != nil && context.Cause(ctx) == context.DeadlineExceeded:
			return "", ErrDeaf
		case err != nil:
			return "", err
		case note.Payload == test:
			return own, nil
		}
	}
}

// selfTest begins the payload that a listener sends to itself.
const selfTest = "listening:"

// wait waits for one notification, or tries the connection when there was none
// for a while. Who notifies without a table's number means everybody.
func (l *Listener) wait(ctx context.Context, conn *pgx.Conn, own string) (heard bool, err error) {
	quiet, cancel := context.WithTimeout(ctx, l.options.Ping)
	defer cancel()
	note, err := conn.WaitForNotification(quiet)
	if err == nil {
		return note.Payload == own || !isOID(note.Payload) && !strings.HasPrefix(note.Payload, selfTest), nil
	}
	if ctx.Err() != nil || quiet.Err() == nil {
		return false, err
	}
	ping, cancel := context.WithTimeout(ctx, l.options.Patience)
	defer cancel()
	return false, conn.Ping(ping)
}

func isOID(payload string) bool {
	return payload != "" && strings.Trim(payload, "0123456789") == ""
}
