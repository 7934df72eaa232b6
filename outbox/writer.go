package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/internal/handle"
)

// Execer is a handle that statements can be run on: *sql.Tx, or anything built
// on it that kept the method, such as sqlx's or ent's transaction, or gorm's
// tx.Statement.ConnPool; or what [Pgx] makes of a pgx.Tx. It must hand the statement and its values on as they are;
// bun.Tx doesn't, so give the *sql.Tx inside it: tx.Tx.
//
// A handle that begins transactions, such as a *sql.DB, is refused, as messages would be
// delivered though the change is rolled back: see [WithoutTransaction].
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// WithoutTransaction lets [Writer.Write] use a *sql.DB, a *sql.Conn, or what [Pgx] makes of a pool, for messages that
// belong to no change. Each statement then commits by itself; a Write normally needs one.
func WithoutTransaction(db Execer) Execer {
	if handle.IsNil(db) {
		return nil
	}
	return alone{db}
}

// alone is a handle that is known to be no transaction.
type alone struct{ Execer }

// BeginTx is what tells that it is none.
func (alone) BeginTx() {}

// nameOf is the type of a handle, or of the one inside it.
func nameOf(tx Execer) string {
	switch h := tx.(type) {
	case alone:
		return nameOf(h.Execer)
	case pgxPool:
		return h.name
	}
	return fmt.Sprintf("%T", tx)
}

// Writer writes messages to one outbox table. It holds no connection; make one
// at the start of the program and keep it. All methods may be called
// concurrently.
type Writer struct {
	dialect    dialect.Dialect
	table      dialect.Table
	maxPayload int
	keyLocks   bool
	duplicates Duplicates
	notices    *limiter                                // nil: none
	headers    func(context.Context) map[string]string // nil: none
	newID      func() string
}

// NewWriter makes a Writer for a database: dialect.Postgres(), dialect.SQLite() or
// that of another one. An error names every option that is wrong.
func NewWriter(d dialect.Dialect, options Options) (*Writer, error) {
	if d == nil {
		return nil, errors.New("make an outbox writer: the dialect is nil; give that of your database, from package dialect")
	}
	w := &Writer{dialect: d, maxPayload: defaultMaxPayload, newID: NewID}
	if err := w.apply(options); err != nil {
		return nil, fmt.Errorf("make an outbox writer: %w", err)
	}
	return w, nil
}

// Write inserts the messages in their order, in the transaction tx. They are
// delivered if and only if it commits. Without messages it does nothing.
//
// All messages are checked before anything is sent: if one breaks a rule, none
// is written, and the error matches [ErrInvalid] and is a [*ValidationError].
// After any other error the transaction should be rolled back.
//
// Hundreds of messages in one call cost far less than as many calls.
func (w *Writer) Write(ctx context.Context, tx Execer, messages ...Message) error {
	if len(messages) == 0 {
		return nil
	}
	if err := w.notMade(); err != nil {
		return err
	}
	if err := w.write(ctx, tx, messages); err != nil {
		return fmt.Errorf("write %s to %s: %w", counted(len(messages)), w.table, err)
	}
	return nil
}

// notMade is an error if NewWriter didn't make it.
func (w *Writer) notMade() error {
	if w == nil || w.dialect == nil {
		return errors.New("the outbox writer is nil or empty: use what NewWriter returned, once its error was looked at")
	}
	return nil
}

func (w *Writer) write(ctx context.Context, tx Execer, messages []Message) error {
	rows, err := w.rows(w.withHeaders(ctx, messages))
	if err != nil {
		return err
	}
	if err := w.checkHandle(tx, false); err != nil {
		return err
	}
	if w.keyLocks {
		if err := w.run(ctx, tx, w.dialect.LockKeys(w.table, keysOf(rows))); err != nil {
			return fmt.Errorf("lock their keys: %w", err)
		}
	}
	if w.duplicates != AllowDuplicates {
		if rows, err = w.withoutDuplicates(ctx, tx, messages, rows); err != nil || len(rows) == 0 {
			return err
		}
	}
	if err := w.run(ctx, tx, w.dialect.Insert(w.table, rows)); err != nil {
		return err
	}
	if w.notices.allow() {
		if err := w.run(ctx, tx, w.dialect.Notify(w.table)); err != nil {
			return fmt.Errorf("notify the relays: %w", err)
		}
	}
	return nil
}

// checkHandle refuses a handle that won't do. Write needs a transaction, unless WithoutTransaction says that there is
// none; with KeyLocks it needs one in any case. Cancel and Duplicates always need one, and need to know at once how many
// rows a statement affected, which a *pgx.Batch doesn't tell.
func (w *Writer) checkHandle(tx Execer, cancels bool) error {
	if handle.IsNil(tx) {
		return fmt.Errorf("the transaction is nil (%T): give the one that the change is made in", tx)
	}
	pool := handle.Begins(tx)
	_, told := tx.(alone)
	_, later := tx.(queue)
	switch asks := cancels || w.duplicates != AllowDuplicates; {
	case pool && w.keyLocks && !cancels:
		return fmt.Errorf("a %s is no transaction, and KeyLocks locks keys until one ends: give the *sql.Tx", nameOf(tx))
	case pool && asks:
		return fmt.Errorf("a %s is no transaction, and Cancel and Duplicates need one: give the *sql.Tx", nameOf(tx))
	case pool && !told:
		return fmt.Errorf("a %s is no transaction, and what it writes would be delivered though the change is rolled back: "+
			"give the transaction that the change is made in; for messages that belong to none there is outbox.WithoutTransaction", nameOf(tx))
	case later && asks:
		return errors.New("a *pgx.Batch gives no answer before it is sent, and Cancel and Duplicates need one: give the pgx.Tx, by Pgx")
	}
	return nil
}

func (w *Writer) run(ctx context.Context, tx Execer, queries []dialect.Query) error {
	for _, query := range queries {
		if _, err := tx.ExecContext(ctx, query.SQL, query.Args...); err != nil {
			return w.explained(err)
		}
	}
	return nil
}

// count runs statements and returns how many rows they have affected.
func (w *Writer) count(ctx context.Context, tx Execer, queries []dialect.Query) (affected int64, err error) {
	for _, query := range queries {
		result, err := tx.ExecContext(ctx, query.SQL, query.Args...)
		if err != nil {
			return 0, w.explained(err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		affected += n
	}
	return affected, nil
}

// explained adds what to do, where that is known.
func (w *Writer) explained(err error) error {
	switch {
	case w.dialect.Missing(err):
		return fmt.Errorf("the table is missing: create it with rowrelay migrate up, or in Go with App.Migrate or package migrations, or name it in Options.Table, with its schema if search_path lacks that: %w", err)
	case formatted(err):
		return fmt.Errorf("the statement came without its values, as from a handle that puts them in by itself: give the *sql.Tx inside it, which is tx.Tx of a bun.Tx: %w", err)
	case w.dialect.Name() == "sqlite" && w.dialect.Busy(err):
		return fmt.Errorf("another transaction writes; open the file with _txlock=immediate and a busy timeout (see outbox/README.md): %w", err)
	case dialect.Misunderstood(err):
		return fmt.Errorf("the database doesn't understand %s: give NewWriter the dialect of this database, or rowrelay.New its kind: %w", w.dialect.Name(), err)
	case w.dialect.Denied(err):
		return fmt.Errorf("the user lacks a right: a producer needs INSERT on %s, and more to cancel and for Duplicates (see outbox/README.md): %w", w.table, err)
	}
	return err
}

// formatted tells the answer to a placeholder that nothing was given for.
func formatted(err error) bool { return strings.Contains(err.Error(), "there is no parameter $") }

func counted(messages int) string {
	if messages == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", messages)
}

// withHeaders adds the headers of the Write's context to those of the messages, which stay as they are.
func (w *Writer) withHeaders(ctx context.Context, messages []Message) []Message {
	if w.headers == nil {
		return messages
	}
	added := w.headers(ctx)
	if len(added) == 0 {
		return messages
	}
	messages = slices.Clone(messages)
	for i := range messages {
		own := messages[i].Headers
		messages[i].Headers = maps.Clone(added)
		maps.Copy(messages[i].Headers, own)
	}
	return messages
}

// rows checks all messages and makes them ready to be stored.
func (w *Writer) rows(messages []Message) ([]dialect.Row, error) {
	rows := make([]dialect.Row, len(messages))
	for i, message := range messages {
		row, broken := w.row(message)
		if broken != nil {
			broken.Index = i
			return nil, broken
		}
		rows[i] = row
	}
	return rows, nil
}

func (w *Writer) row(m Message) (dialect.Row, *ValidationError) {
	if broken := w.check(m); broken != nil {
		return dialect.Row{}, broken
	}
	id := m.ID
	if id == "" {
		id = w.newID()
	}
	return dialect.Row{
		MessageID:   strings.ToLower(id),
		Topic:       m.Topic,
		Key:         m.Key,
		Payload:     m.Payload,
		Headers:     headersJSON(m.Headers),
		AvailableAt: m.AvailableAt,
		ExpiresAt:   m.ExpiresAt,
		Priority:    m.Priority,
	}, nil
}

func keysOf(rows []dialect.Row) []string {
	var keys []string
	seen := make(map[string]bool)
	for _, row := range rows {
		if row.Key != "" && !seen[row.Key] {
			seen[row.Key] = true
			keys = append(keys, row.Key)
		}
	}
	return keys
}
