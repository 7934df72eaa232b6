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

// Execer runs statements in a transaction. It is a *sql.Tx; or a type that wraps a *sql.Tx and
// has its method ExecContext, such as the transactions of sqlx and ent or gorm's
// tx.Statement.ConnPool; or the result of [Pgx] for a pgx.Tx. ExecContext must pass the
// statement and its values to the driver unchanged. A bun.Tx changes them, so pass its field Tx,
// which is a *sql.Tx, instead.
//
// [Writer.Write] refuses a handle that begins transactions, such as a *sql.DB, because the
// messages would be delivered even if the change is rolled back: see [WithoutTransaction].
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// WithoutTransaction lets [Writer.Write] use a *sql.DB, a *sql.Conn, or the result of [Pgx]
// for a pool, for messages that don't announce a change in the database. Each statement
// is then its own transaction. A Write normally runs a single statement.
func WithoutTransaction(db Execer) Execer {
	if handle.IsNil(db) {
		return nil
	}
	return alone{db}
}

// alone wraps a handle that the caller passed through WithoutTransaction.
type alone struct{ Execer }

// BeginTx is never called. It makes handle.Begins return true, because the handle is not a
// transaction.
func (alone) BeginTx() {}

// nameOf returns the type of the handle that the caller passed, without the wrappers of this package.
func nameOf(tx Execer) string {
	switch h := tx.(type) {
	case alone:
		return nameOf(h.Execer)
	case pgxPool:
		return h.name
	}
	return fmt.Sprintf("%T", tx)
}

// Writer writes messages to one outbox table. It holds no connection. Make one
// Writer at the start of the program and keep it. All methods may be called
// concurrently.
type Writer struct {
	dialect    dialect.Dialect
	table      dialect.Table
	maxPayload int
	keyLocks   bool
	duplicates Duplicates
	notices    *limiter                                // nil: no notifications
	headers    func(context.Context) map[string]string // nil: no added headers
	newID      func() string
}

// NewWriter returns a Writer for a database, given its dialect, such as dialect.Postgres()
// or dialect.SQLite(). The error names every invalid option.
func NewWriter(d dialect.Dialect, options Options) (*Writer, error) {
	if d == nil {
		return nil, errors.New("make an outbox writer: the dialect is nil: pass your database's dialect from package dialect")
	}
	w := &Writer{dialect: d, maxPayload: defaultMaxPayload, newID: NewID}
	if err := w.apply(options); err != nil {
		return nil, fmt.Errorf("make an outbox writer: %w", err)
	}
	return w, nil
}

// Write inserts the messages in the given order in the transaction tx. They are
// delivered if and only if the transaction commits. If there are no messages, Write
// does nothing.
//
// Write checks all messages before it runs a statement. If one is invalid, Write inserts none and
// returns a [*ValidationError], which matches [ErrInvalid]. After this error or a [*DuplicateError] the
// transaction can continue. After any other error it should be rolled back.
//
// One call with hundreds of messages costs far less than one call for each message.
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

// notMade returns an error if w wasn't created by NewWriter.
func (w *Writer) notMade() error {
	if w == nil || w.dialect == nil {
		return errors.New("the outbox writer is nil or empty: use what NewWriter returned, after checking its error")
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
			return fmt.Errorf("lock keys: %w", err)
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
			return fmt.Errorf("notify relays: %w", err)
		}
	}
	return nil
}

// checkHandle refuses a handle that is nil or unsuitable. A plain Write needs a transaction, or a handle from
// WithoutTransaction. Cancel, KeyLocks and Duplicates always need a transaction. Cancel and Duplicates also need the number
// of rows that each statement affected, which a *pgx.Batch doesn't return.
func (w *Writer) checkHandle(tx Execer, cancels bool) error {
	if handle.IsNil(tx) {
		return fmt.Errorf("the transaction is nil (%T): pass the transaction that makes the change", tx)
	}
	pool := handle.Begins(tx)
	_, told := tx.(alone)
	_, later := tx.(queue)
	switch asks := cancels || w.duplicates != AllowDuplicates; {
	case pool && w.keyLocks && !cancels:
		return fmt.Errorf("a %s is not a transaction, and KeyLocks holds its locks until a transaction ends: pass the *sql.Tx", nameOf(tx))
	case pool && asks:
		return fmt.Errorf("a %s is not a transaction, and Cancel and Duplicates need one: pass the *sql.Tx", nameOf(tx))
	case pool && !told:
		return fmt.Errorf("a %s is not a transaction, and its messages would be delivered even if the change is rolled back: "+
			"pass the transaction that makes the change, or use outbox.WithoutTransaction for messages that don't announce a change in the database", nameOf(tx))
	case later && asks:
		return errors.New("a *pgx.Batch returns no results before it is sent, and Cancel and Duplicates need them: pass outbox.Pgx(tx) with the pgx.Tx")
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

// count runs statements and returns the number of rows that they affected.
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

// explained adds a hint for the caller to an error whose cause is known.
func (w *Writer) explained(err error) error {
	switch {
	case w.dialect.Missing(err):
		return fmt.Errorf("the table is missing: create it with rowrelay migrate up (in Go: App.Migrate or package migrations). If it has another name, set Options.Table to that name, with the schema if the schema isn't in search_path: %w", err)
	case formatted(err):
		return fmt.Errorf("the statement reached the server without its values, because the handle, such as a bun.Tx, writes values into the statement itself: pass the *sql.Tx inside it (tx.Tx of a bun.Tx): %w", err)
	case w.dialect.Name() == "sqlite" && w.dialect.Busy(err):
		return fmt.Errorf("another transaction is writing: open the file with _txlock=immediate and a busy timeout (see outbox/README.md): %w", err)
	case dialect.Misunderstood(err):
		return fmt.Errorf("the database doesn't understand the SQL of dialect %s: pass this database's dialect to NewWriter, or its kind to rowrelay.New: %w", w.dialect.Name(), err)
	case w.dialect.Denied(err):
		return fmt.Errorf("the user lacks a right: a producer needs INSERT on %s, and more rights for Cancel and Duplicates (see outbox/README.md): %w", w.table, err)
	}
	return err
}

// formatted reports whether PostgreSQL received a statement with placeholders but without values.
func formatted(err error) bool { return strings.Contains(err.Error(), "there is no parameter $") }

func counted(messages int) string {
	if messages == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", messages)
}

// withHeaders returns the messages with the headers of Options.Headers added. It doesn't change the caller's messages.
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

// rows checks all messages and converts them to rows.
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
