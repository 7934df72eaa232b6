// Package migrations makes and updates the tables of an outbox, and the table of
// an inbox, by which consumers recognise what comes again. The SQL is
// embedded, one folder a database, and goose runs it; [Migrations.Print]
// writes it down for those who run their migrations another way.
//
// Published files are never edited.
package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Version is the number of the newest migration, which this release needs.
const Version = 1

// Options say which table is meant.
type Options struct {
	// Table is the outbox table's name, with or without a schema, which has to
	// exist. Defaults to "outbox".
	Table string

	// Claim is the way that the table is going to be claimed: "lanes" or "rows".
	// For rows, Up also makes the indexes that it needs, if they are missing,
	// and Print prints them. Defaults to "lanes".
	Claim string
}

// Migration is one step.
type Migration struct {
	Version   int64
	Name      string // of its file
	Applied   bool
	AppliedAt time.Time // zero if not applied, or not by this package

	printed bool // if it was applied, then by the printed SQL
}

// Migrations makes and updates the tables of one outbox or inbox. Its methods may be
// called concurrently, and by several processes at once: each step is applied
// once.
type Migrations struct {
	db      *sql.DB
	dialect dialect.Dialect
	set     string // the folder of an inbox's files, if they aren't an outbox's
	table   dialect.Table
	claim   string
	steps   []step
	fits    bool // the dialect is the variant that the server asks for
}

// New checks the options. It doesn't touch the database, and db, which is
// never closed here, may be nil if only Print is called.
func New(db *sql.DB, d dialect.Dialect, options Options) (*Migrations, error) {
	if claim := options.Claim; claim != "" && claim != "lanes" && claim != "rows" {
		return nil, fmt.Errorf("claim %q is not known: it must be lanes or rows", claim)
	}
	return (&Migrations{db: db, dialect: d, claim: options.Claim}).of(options.Table)
}

// inboxSet is the folder of an inbox's files.
const inboxSet = "inbox"

// NewInbox is New for the table of an inbox, which consumers keep in their own
// database: see package outbox/inbox. The table's name, with or without a schema,
// defaults to "inbox".
func NewInbox(db *sql.DB, d dialect.Dialect, table string) (*Migrations, error) {
	return (&Migrations{db: db, dialect: d, set: inboxSet}).of(cmp.Or(table, "inbox"))
}

// of reads the table's name, and puts it into the files.
func (m *Migrations) of(table string) (_ *Migrations, err error) {
	if m.dialect == nil {
		return nil, errors.New("make migrations: the dialect is nil: give dialect.Postgres() or that of your database")
	}
	if table != "" {
		if m.table, err = dialect.ParseTable(table); err != nil {
			return nil, err
		}
	}
	if isMySQL(m.dialect.Name()) {
		m.table = m.table.Backquoted()
	}
	if m.steps, err = render(m.set, m.dialect.Name(), m.table); err != nil {
		return nil, err
	}
	return m, nil
}

// Up applies what is pending and returns it. Nothing of a step that fails is
// kept.
func (m *Migrations) Up(ctx context.Context) ([]Migration, error) {
	m, err := m.fitted(ctx)
	if err != nil {
		return nil, err
	}
	pending, err := m.Pending(ctx)
	if err != nil {
		return nil, err
	}
	if len(pending) > 0 {
		if err := m.run(ctx, m.up); err != nil {
			return nil, fmt.Errorf("migrate table %s: %w", m.table, dialect.Explain(ctx, m.db, m.dialect, m.explain(err)))
		}
	}
	if m.claim == "rows" {
		if err := m.run(ctx, m.makeIndexes); err != nil {
			return nil, fmt.Errorf("make the indexes for claiming by rows on %s: %w", m.table, m.explain(err))
		}
	}
	return pending, nil
}

// Down takes the last applied step back, and drops what it had made with all
// that is in it. It returns nil if none was applied, and an error if the printed
// SQL was run instead: how to take that back is printed, too.
func (m *Migrations) Down(ctx context.Context) (*Migration, error) {
	m, err := m.fitted(ctx)
	if err != nil {
		return nil, err
	}
	applied, err := m.lastApplied(ctx)
	if applied == nil || err != nil {
		return nil, err
	}
	if applied.printed {
		return nil, fmt.Errorf("take back migration %d of table %s: it was applied by the printed SQL; run the statements that rowrelay migrate print has for this", applied.Version, m.table)
	}
	if err := m.run(ctx, func(ctx context.Context) error { return m.down(ctx, applied.Version) }); err != nil {
		return nil, fmt.Errorf("take back migration %d of table %s: %w", applied.Version, m.table, err)
	}
	return applied, nil
}

func (m *Migrations) lastApplied(ctx context.Context) (*Migration, error) {
	all, err := m.Status(ctx)
	if err != nil {
		return nil, err
	}
	var last *Migration
	for i := range all {
		if all[i].Applied {
			last = &all[i]
		}
	}
	return last, nil
}

func (m *Migrations) up(ctx context.Context) error {
	provider, err := m.provider()
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func (m *Migrations) down(ctx context.Context, version int64) error {
	provider, err := m.provider()
	if err != nil {
		return err
	}
	_, err = provider.ApplyVersion(ctx, version, false)
	if errors.Is(err, goose.ErrNotApplied) {
		return nil // another process was first
	}
	return err
}

func (m *Migrations) makeIndexes(ctx context.Context) error {
	var there int
	query := m.dialect.RowIndexes(m.table)
	if err := m.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&there); err != nil || there == dialect.RowIndexCount {
		return err
	}
	for _, query := range m.dialect.MakeRowIndexes(m.table) {
		if _, err := m.db.ExecContext(ctx, query.SQL, query.Args...); err != nil {
			return err
		}
	}
	return nil
}
