// Package migrations makes and updates the tables of an outbox, and the table of
// an inbox, by which consumers recognise what comes again. The SQL is
// embedded, and goose runs it; [Migrations.Print]
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
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/databases"
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

	// Notify is whether plain INSERTs tell listening relays, by a trigger: "on" has Up make
	// it and Print print it, "off" has Up drop it. Either is an error where the database has
	// no notifications, which is everywhere but on PostgreSQL. Defaults to leaving it as it is.
	Notify string
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
	schema  backend.Schema
	set     string // the folder of the files
	table   dialect.Table
	options Options
	notify  notifySQL
	steps   []step
}

// New checks the options. It doesn't touch the database, and db, which is
// never closed here, may be nil if only Print is called.
func New(db *sql.DB, d dialect.Dialect, options Options) (*Migrations, error) {
	if claim := options.Claim; claim != "" && claim != "lanes" && claim != "rows" {
		return nil, fmt.Errorf("claim %q is not known: it must be lanes or rows", claim)
	}
	if notify := options.Notify; notify != "" && notify != "on" && notify != "off" {
		return nil, fmt.Errorf("notify %q is not known: it must be on or off", notify)
	}
	return (&Migrations{db: db, dialect: d, set: outboxSet, options: options}).of(options.Table)
}

// NewInbox is New for the table of an inbox, which consumers keep in their own
// database: see package outbox/inbox. The table's name, with or without a schema,
// defaults to "inbox".
func NewInbox(db *sql.DB, d dialect.Dialect, table string) (*Migrations, error) {
	return (&Migrations{db: db, dialect: d, set: inboxSet}).of(cmp.Or(table, "inbox"))
}

// of reads the table's name, and puts it into the files.
func (m *Migrations) of(table string) (_ *Migrations, err error) {
	if m.dialect == nil {
		return nil, errors.New("make migrations: the dialect is nil: give that of your database, from package dialect")
	}
	if m.table, err = dialect.ParseTable(cmp.Or(table, dialect.DefaultTable)); err != nil {
		return nil, err
	}
	product, _, known := databases.Of(m.dialect.Name())
	if !known {
		return nil, fmt.Errorf("there are no migrations for %s", m.dialect.Name())
	}
	m.schema = product.Schema
	if m.options.Notify != "" && m.schema.Notify == "" {
		return nil, fmt.Errorf("notify: %s has no notifications: leave it out, relays look by themselves", m.dialect.Name())
	}
	if m.schema.Quoted != nil {
		m.table = m.schema.Quoted(m.table)
	}
	if m.notify, err = renderNotify(m.schema.Notify, m.table); err != nil {
		return nil, err
	}
	if m.steps, err = render(m.set, m.schema, m.table); err != nil {
		return nil, err
	}
	return m, nil
}

// notMade is an error if New didn't make it.
func (m *Migrations) notMade() error {
	if m == nil || m.dialect == nil {
		return errors.New("the Migrations are nil or empty: use what New returned, once its error was looked at")
	}
	return nil
}

// Up applies what is pending and returns it. Nothing of a step that fails is
// kept.
func (m *Migrations) Up(ctx context.Context) ([]Migration, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	pending, err := m.status(ctx)
	if err != nil {
		return nil, err
	}
	if pending = slices.DeleteFunc(pending, isApplied); len(pending) > 0 {
		err := m.run(ctx, func(ctx context.Context) error {
			if err := m.repairVersions(ctx); err != nil {
				return err
			}
			provider, err := m.provider()
			if err == nil {
				_, err = provider.Up(ctx)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("migrate table %s: %w", m.table, dialect.Explain(ctx, m.db, m.dialect, m.explain(err)))
		}
	}
	if m.set != inboxSet {
		if err := m.run(ctx, m.fillTables); err != nil {
			return nil, fmt.Errorf("restore the rows that table %s always has: %w", m.table, m.explain(err))
		}
	}
	if m.options.Claim == "rows" {
		if err := m.run(ctx, m.makeIndexes); err != nil {
			return nil, fmt.Errorf("make the indexes for claiming by rows on %s: %w", m.table, m.explain(err))
		}
	}
	if m.options.Notify != "" {
		if err := m.run(ctx, m.setNotify); err != nil {
			return nil, fmt.Errorf("turn the trigger of table %s %s: %w", m.table, m.options.Notify, m.explain(err))
		}
	}
	return pending, nil
}

// Undelivered counts the messages that wait or are parked, whichever step was applied last. It
// reads all of them.
func (m *Migrations) Undelivered(ctx context.Context) (all int64, err error) {
	if err = m.ready(ctx); err != nil {
		return 0, err
	}
	for _, name := range []string{m.table.Pending, m.table.Held} {
		var some int64
		if err := m.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name).Scan(&some); err != nil {
			return 0, fmt.Errorf("count the messages of table %s: %w", name, err)
		}
		all += some
	}
	return all, nil
}

// Records counts the controls that operators have put in force, and the entries in the log of their
// actions. Both are lost with the tables. Tables that don't exist have none.
func (m *Migrations) Records(ctx context.Context) (controls, actions int64, err error) {
	if err = m.ready(ctx); err != nil {
		return 0, 0, err
	}
	for name, count := range map[string]*int64{m.table.Controls: &controls, m.table.Actions: &actions} {
		err := m.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name).Scan(count)
		if err != nil && !m.dialect.Missing(err) {
			return 0, 0, fmt.Errorf("count the rows of table %s: %w", name, err)
		}
	}
	return controls, actions, nil
}

// Down takes the last applied step back, and drops what it had made with all
// that is in it. It returns nil if none was applied, and an error if the printed
// SQL was run instead: how to take that back is printed, too.
func (m *Migrations) Down(ctx context.Context) (*Migration, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	all, err := m.status(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(each Migration) bool { return !each.Applied })
	if len(all) == 0 {
		return nil, nil
	}
	last := all[len(all)-1]
	if last.printed {
		return nil, fmt.Errorf("take back migration %d of table %s: it was applied by the printed SQL; run the statements that rowrelay migrate print has for this", last.Version, m.table)
	}
	err = m.run(ctx, func(ctx context.Context) error {
		provider, err := m.provider()
		if err == nil {
			_, err = provider.ApplyVersion(ctx, last.Version, false)
		}
		if errors.Is(err, goose.ErrNotApplied) {
			return nil // another process was first
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take back migration %d of table %s: %w", last.Version, m.table, err)
	}
	return &last, nil
}

// Status lists all steps, the newest last, and says which are applied. It
// changes nothing.
func (m *Migrations) Status(ctx context.Context) ([]Migration, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	return m.status(ctx)
}

func (m *Migrations) status(ctx context.Context) ([]Migration, error) {
	var applied map[int64]time.Time
	var printed bool
	err := m.run(ctx, func(ctx context.Context) (err error) { // an SQLite file that others open is busy while it becomes one in WAL mode
		applied, printed, err = m.applied(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the schema version of table %s: %w", m.table, dialect.Explain(ctx, m.db, m.dialect, m.explain(err)))
	}
	all := make([]Migration, 0, len(m.steps))
	for _, step := range m.steps {
		at, ok := applied[step.version]
		all = append(all, Migration{Version: step.version, Name: step.name, Applied: ok, AppliedAt: at, printed: printed})
	}
	return all, nil
}

// Pending lists the steps that Up would apply. It changes nothing.
func (m *Migrations) Pending(ctx context.Context) ([]Migration, error) {
	all, err := m.Status(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, isApplied), nil
}

func isApplied(each Migration) bool { return each.Applied }

// applied asks goose's table; goose's own status would create it. Where the
// printed SQL was run there is none, and the tables themselves tell.
func (m *Migrations) applied(ctx context.Context) (applied map[int64]time.Time, printed bool, err error) {
	rows, err := m.db.QueryContext(ctx, "SELECT version_id, tstamp FROM "+m.table.SchemaVersion)
	if m.dialect.Missing(err) {
		applied, err = m.appliedElsewhere(ctx)
		return applied, true, err
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	applied = make(map[int64]time.Time)
	for rows.Next() {
		var version int64
		var at any
		if err := rows.Scan(&version, &at); err != nil {
			return nil, false, err
		}
		applied[version] = timeOf(at)
	}
	return applied, false, rows.Err()
}

func (m *Migrations) appliedElsewhere(ctx context.Context) (map[int64]time.Time, error) {
	applied := make(map[int64]time.Time)
	query := m.dialect.SchemaVersion(m.table)
	if m.set == inboxSet {
		query = m.dialect.InboxVersion(m.table)
	}
	var text string
	err := m.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&text)
	if m.dialect.Missing(err) {
		return applied, nil
	}
	if err != nil {
		return nil, err
	}
	newest, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, err
	}
	for version := int64(1); version <= newest; version++ {
		applied[version] = time.Time{}
	}
	return applied, nil
}

// timeOf takes a time as whichever driver has it; one that can't be read is none.
func timeOf(value any) time.Time {
	switch value := value.(type) {
	case time.Time:
		return value
	case []byte:
		at, _ := time.Parse(time.DateTime, string(value))
		return at
	default:
		return time.Time{}
	}
}

// Another process that is applying the same step makes ours fail, in one of
// many ways; what it did then shows at the next try. A busy database is worth
// more patience.
const (
	tries     = 4
	busyTries = 60
	pause     = 250 * time.Millisecond // at most
)

func (m *Migrations) run(ctx context.Context, action func(context.Context) error) error {
	for try := 1; ; try++ {
		err := action(ctx)
		if err == nil || m.dialect.Denied(err) || m.schemaMissing(err) || try >= busyTries || try >= tries && !m.dialect.Busy(err) {
			return err
		}
		if m.dialect.ReadOnly(err) {
			dialect.Redial(ctx, m.db)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-time.After(rand.N(pause)):
		}
	}
}

// schemaMissing can't be told from a missing table everywhere; but no step
// that fits the one before it misses a table.
func (m *Migrations) schemaMissing(err error) bool {
	return m.table.Schema != "" && m.dialect.Missing(err)
}

// provider makes a new one for each try: one whose table of versions couldn't be
// made doesn't try that again. It is never closed: that would close the user's
// pool.
func (m *Migrations) provider() (*goose.Provider, error) {
	options := []goose.ProviderOption{goose.WithStore(m.versions()), goose.WithDisableGlobalRegistry(true)}
	if m.schema.Lock != nil {
		options = append(options, goose.WithSessionLocker(m.schema.Lock(m.table)))
	}
	if repeating, ok := m.dialect.(dialect.Repeating); ok {
		return goose.NewProvider(database.DialectCustom, m.db, nil, append(options, goose.WithGoMigrations(m.repeated(repeating)...))...)
	}
	return goose.NewProvider(database.DialectCustom, m.db, stepFiles(m.steps), options...)
}

func (m *Migrations) versions() versions {
	return versions{m.schema.Versions(m.table), m.dialect, m.table.SchemaVersion}
}

// explain adds what an operator can do.
func (m *Migrations) explain(err error) error {
	switch {
	case m.schemaMissing(err):
		return fmt.Errorf("%w; create the schema %s first, which is not done here", err, m.table.Schema)
	case m.dialect.Denied(err):
		return fmt.Errorf("%w; run this as a user who may create tables, or have somebody run the printed SQL", err)
	case m.schema.BusyHint != "" && m.dialect.Busy(err):
		return fmt.Errorf("%w; %s", err, m.schema.BusyHint)
	default:
		return err
	}
}

// ready is an error if m can't work on its database: New didn't make it, there is no pool, or the
// dialect refuses the server.
func (m *Migrations) ready(ctx context.Context) error {
	if err := m.notMade(); err != nil {
		return err
	}
	if m.db == nil {
		return fmt.Errorf("migrate table %s: the database is nil: give New the *sql.DB that sql.Open returned", m.table)
	}
	fitting, differs := m.dialect.(dialect.Fitting)
	if !differs {
		return nil
	}
	query, _ := fitting.Server(m.table)
	facts, err := factsOf(ctx, m.db, query)
	if err != nil {
		return fmt.Errorf("ask the server of table %s for its version: %w", m.table, dialect.Explain(ctx, m.db, m.dialect, err))
	}
	if _, err := fitting.Fit(dialect.Server{Facts: facts, Skips: true}); err != nil {
		return fmt.Errorf("migrate table %s: %w", m.table, err)
	}
	return nil
}

// factsOf reads lines of a name and a value.
func factsOf(ctx context.Context, db *sql.DB, query dialect.Query) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	facts := make(map[string]string)
	for rows.Next() {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		facts[name] = value.String
	}
	return facts, rows.Err()
}

// repairVersions fills goose's table of versions where it has no row, which goose takes for an error.
// It is empty after a first migration that failed on a database that commits each CREATE, and in
// a copy of the tables without their rows. There the tables exist, and the steps are noted as applied;
// where a step may be run again it is run again.
func (m *Migrations) repairVersions(ctx context.Context) error {
	applied := m.versions()
	if applied.Exists == "" {
		return nil // goose makes it again
	}
	var count int
	if err := m.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+m.table.SchemaVersion).Scan(&count); m.dialect.Missing(err) || count > 0 {
		return nil
	} else if err != nil {
		return err
	}
	versions := []int64{0} // goose's first
	query := m.dialect.SchemaVersion(m.table)
	if m.set == inboxSet {
		query = m.dialect.InboxVersion(m.table)
	}
	var version string
	err := m.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&version)
	if _, again := m.dialect.(dialect.Repeating); !again && (err == nil || errors.Is(err, sql.ErrNoRows)) {
		for _, step := range m.steps {
			versions = append(versions, step.version)
		}
	}
	for _, version := range versions {
		if err := applied.Insert(ctx, m.db, database.InsertRequest{Version: version}); err != nil {
			return err
		}
	}
	return nil
}

// fillTables restores rows that the tables always have: a TRUNCATE, or a copy without rows, leaves none.
func (m *Migrations) fillTables(ctx context.Context) error {
	query := m.dialect.SchemaVersion(m.table)
	var version string
	if err := m.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&version); errors.Is(err, sql.ErrNoRows) {
		statement := fmt.Sprintf("INSERT INTO %s (name, value) VALUES ('schema', '%d')", m.table.Settings, Version)
		if _, err := m.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	for _, rows := range m.dialect.FixedRows(m.table) {
		var count int
		if err := m.db.QueryRowContext(ctx, rows.Count.SQL, rows.Count.Args...).Scan(&count); err != nil || count >= rows.Want {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := m.db.ExecContext(ctx, rows.Fill.SQL, rows.Fill.Args...); err != nil {
			return err
		}
	}
	return nil
}

// makeIndexes makes those for claiming by rows, unless all are there.
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
