// Package migrations creates and updates the tables of an outbox, and the table of
// an inbox, with which consumers recognise duplicates. The SQL is embedded, and
// goose runs it. [Migrations.Print] prints the SQL for other migration tools.
//
// A migration file is never edited after its release.
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
const Version = 2

// compatible is the lowest Version of a release that can use this release's tables. The newest migration stores it as the setting
// schema_compatible.
const compatible = 1

// Options name the table and select optional objects.
type Options struct {
	// Table is the outbox table's name, with or without a schema. Up requires that the
	// schema exists. Defaults to "outbox".
	Table string

	// Claim selects how relays will claim messages: by "lanes" or by "rows". With "rows", Up
	// also creates the missing indexes for claiming by rows, and Print prints the statements
	// that create these indexes. Defaults to "lanes".
	Claim string

	// Notify controls a trigger that notifies listening relays after plain INSERTs. With
	// "on", Up creates the trigger; with "off", Up drops it. Print prints the statements.
	// By default the trigger stays as it is. On a database other than PostgreSQL, either
	// value is an error, because only PostgreSQL has notifications.
	Notify string
}

// Migration is one step.
type Migration struct {
	Version   int64
	Name      string // the name of its file
	Applied   bool
	AppliedAt time.Time // zero if the step is not applied, or if the printed SQL applied it

	printed bool // whether the printed SQL applied the steps
}

// Migrations creates and updates the tables of one outbox or inbox. Its methods may be
// called concurrently, even by several processes: each step is applied only once.
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

// New checks the options and returns the Migrations of an outbox. It doesn't use the
// database, and Migrations never closes db. Print, PrintAfter and Files don't use db, so db may
// be nil if no other method is called.
func New(db *sql.DB, d dialect.Dialect, options Options) (*Migrations, error) {
	if claim := options.Claim; claim != "" && claim != "lanes" && claim != "rows" {
		return nil, fmt.Errorf("claim %q is not known: it must be lanes or rows", claim)
	}
	if notify := options.Notify; notify != "" && notify != "on" && notify != "off" {
		return nil, fmt.Errorf("notify %q is not known: it must be on or off", notify)
	}
	return (&Migrations{db: db, dialect: d, set: outboxSet, options: options}).of(options.Table)
}

// NewInbox returns the Migrations of an inbox, a table in a consumer's own database:
// see package outbox/inbox. The table's name, with or without a schema, defaults to
// "inbox".
func NewInbox(db *sql.DB, d dialect.Dialect, table string) (*Migrations, error) {
	return (&Migrations{db: db, dialect: d, set: inboxSet}).of(cmp.Or(table, "inbox"))
}

// of parses the table's name, renders the files for this table, and returns m with the table and the rendered steps.
func (m *Migrations) of(table string) (_ *Migrations, err error) {
	if m.dialect == nil {
		return nil, errors.New("make migrations: the dialect is nil: pass your database's dialect from package dialect")
	}
	if m.table, err = dialect.ParseTable(cmp.Or(table, dialect.DefaultTable)); err != nil {
		return nil, err
	}
	product, _, known := databases.Of(m.dialect.Name())
	if !known {
		return nil, fmt.Errorf("make migrations: dialect %s has no migrations", m.dialect.Name())
	}
	m.schema = product.Schema
	if m.options.Notify != "" && m.schema.Notify == "" {
		return nil, fmt.Errorf("notify: %s has no notifications: leave the option out, relays poll anyway", m.dialect.Name())
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

// notMade returns an error unless New or NewInbox made m.
func (m *Migrations) notMade() error {
	if m == nil || m.dialect == nil {
		return errors.New("the Migrations are nil or empty: use what New returned, after checking its error")
	}
	return nil
}

// Up applies the pending steps and returns them. Each step runs in a transaction if the
// database can roll back DDL. Up also restores fixed rows that are missing, such as the
// rows of the lanes after a TRUNCATE, and applies Options.Claim and Options.Notify.
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
			return nil, fmt.Errorf("restore the fixed rows of table %s: %w", m.table, m.explain(err))
		}
	}
	if m.options.Claim == "rows" {
		if err := m.run(ctx, m.makeIndexes); err != nil {
			return nil, fmt.Errorf("make the indexes for claiming by rows on %s: %w", m.table, m.explain(err))
		}
	}
	if m.options.Notify != "" {
		if err := m.run(ctx, m.setNotify); err != nil {
			return nil, fmt.Errorf("turn the notify trigger of table %s %s: %w", m.table, m.options.Notify, m.explain(err))
		}
	}
	return pending, nil
}

// Undelivered returns the number of messages that wait for delivery or are parked. It counts the
// rows of the outbox table and of the table of held rows, and reads both completely. It works with
// any version of the tables. A table that doesn't exist counts as empty, because another process
// may be rolling back a step, and on some databases others see each DROP TABLE immediately.
func (m *Migrations) Undelivered(ctx context.Context) (all int64, err error) {
	if err = m.ready(ctx); err != nil {
		return 0, err
	}
	for _, name := range []string{m.table.Pending, m.table.Held} {
		var some int64
		if err := m.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name).Scan(&some); err != nil && !m.dialect.Missing(err) {
			return 0, fmt.Errorf("count the messages of table %s: %w", name, err)
		}
		all += some
	}
	return all, nil
}

// Records returns the number of active pauses and limits, and the number of entries in the log of
// operators' actions. Dropping the tables deletes all of them. A table that doesn't exist counts
// as empty.
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

// Down rolls back the last applied step: it drops the objects that the step created, with
// all of their data, and returns the step. It returns nil if no step is applied, and an
// error if the printed SQL applied the steps. To roll back such a step, run the
// statements for it in the printed SQL.
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
		return nil, fmt.Errorf("roll back migration %d of table %s: it was applied by running the printed SQL: run the statements that rowrelay migrate print shows for rolling it back", last.Version, m.table)
	}
	err = m.run(ctx, func(ctx context.Context) error {
		provider, err := m.provider()
		if err == nil {
			_, err = provider.ApplyVersion(ctx, last.Version, false)
		}
		if errors.Is(err, goose.ErrNotApplied) {
			return nil // another process has already rolled it back
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("roll back migration %d of table %s: %w", last.Version, m.table, err)
	}
	return &last, nil
}

// Status returns all steps, both applied and pending, the newest last. It
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
	err := m.run(ctx, func(ctx context.Context) (err error) { // run retries, because an SQLite file is busy while another process switches it to WAL mode
		applied, printed, err = m.applied(ctx)
		return err
	})
	if len(applied) == 0 {
		if err := m.foreign(ctx); err != nil {
			return nil, err
		}
	}
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

// Pending returns the steps that Up would apply. It changes nothing.
func (m *Migrations) Pending(ctx context.Context) ([]Migration, error) {
	all, err := m.Status(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, isApplied), nil
}

func isApplied(each Migration) bool { return each.Applied }

// applied reads goose's table of applied steps. It doesn't use goose's status, which
// would create the table. If the table doesn't exist, the printed SQL may have been
// run, so applied reads the version from the outbox's own tables.
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

// foreign returns an error if another program has created a table with the name of one of our tables.
func (m *Migrations) foreign(ctx context.Context) error {
	find := backend.ForeignOutbox
	if m.set == inboxSet {
		find = backend.ForeignInbox
	}
	if found := find(ctx, m.db, m.table); found != nil {
		return fmt.Errorf("migrate table %s: %w", m.table, found)
	}
	return nil
}

// timeOf converts a time from the types that drivers use. It returns the zero time
// for any other value.
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

// run retries after most errors, because this process can get many different errors while
// another process applies the same step. While the database is busy, run tries up to
// busyTries times, otherwise up to tries times.
const (
	tries     = 4
	busyTries = 60
	pause     = 250 * time.Millisecond // the longest pause between two tries
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

// schemaMissing reports whether the error means that the schema doesn't exist. Some
// databases report a missing table with the same error, but the steps never use a table
// that doesn't exist.
func (m *Migrations) schemaMissing(err error) bool {
	return m.table.Schema != "" && m.dialect.Missing(err)
}

// provider returns a new goose provider for each try, because a provider that failed to
// create the table of versions doesn't try again. The provider is never closed, because
// that would close the caller's pool.
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

// explain adds a hint to an error if the operator can resolve it.
func (m *Migrations) explain(err error) error {
	switch {
	case m.schemaMissing(err):
		return fmt.Errorf("%w; create the schema %s first: migrate up creates no schema, but the SQL of migrate print does", err, m.table.Schema)
	case m.dialect.Denied(err):
		return fmt.Errorf("%w; run this as a user who may create tables, or have such a user run the printed SQL", err)
	case m.schema.BusyHint != "" && m.dialect.Busy(err):
		return fmt.Errorf("%w; %s", err, m.schema.BusyHint)
	default:
		return err
	}
}

// ready returns an error if m can't use its database, because m is a zero value, the
// database is nil or the dialect refuses the server.
func (m *Migrations) ready(ctx context.Context) error {
	if err := m.notMade(); err != nil {
		return err
	}
	if m.db == nil {
		return fmt.Errorf("migrate table %s: the database is nil: pass New the *sql.DB that sql.Open returned", m.table)
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

// factsOf runs a query whose rows have a name and a value, and returns the values by name.
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

// repairVersions inserts rows into goose's table of versions if this table is empty, because goose would return
// an error for an empty table. The table is empty if the first migration failed on a database that commits each
// CREATE, or if the tables were copied without their rows. If the tables of the outbox or inbox exist,
// repairVersions records the steps that created or updated them. If the dialect is Repeating, it inserts only
// version 0, so that goose runs all steps again.
func (m *Migrations) repairVersions(ctx context.Context) error {
	applied := m.versions()
	if applied.Exists == "" {
		return nil // TableExists counts an empty table as missing, so goose creates it again
	}
	var count int
	if err := m.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+m.table.SchemaVersion).Scan(&count); m.dialect.Missing(err) || count > 0 {
		return nil
	} else if err != nil {
		return err
	}
	versions := []int64{0} // the row that goose inserts into a new table
	query := m.dialect.SchemaVersion(m.table)
	if m.set == inboxSet {
		query = m.dialect.InboxVersion(m.table)
	}
	var version string
	err := m.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&version)
	if _, again := m.dialect.(dialect.Repeating); !again && (err == nil || errors.Is(err, sql.ErrNoRows)) {
		for _, step := range m.steps {
			if has, err := m.hasStep(ctx, step.version); err != nil {
				return err
			} else if has {
				versions = append(versions, step.version)
			}
		}
	}
	for _, version := range versions {
		if err := applied.Insert(ctx, m.db, database.InsertRequest{Version: version}); err != nil {
			return err
		}
	}
	return nil
}

// added maps each step after the first to a column that the step adds to the outbox table.
var added = map[int64]string{2: "attempt_log"}

// hasStep reports whether the existing tables have the column that a step adds.
func (m *Migrations) hasStep(ctx context.Context, version int64) (bool, error) {
	if m.set == inboxSet || added[version] == "" {
		return true, nil
	}
	columns, err := backend.TableColumns(ctx, m.db, m.table.Pending)
	return slices.Contains(columns, added[version]), err
}

// fillTables restores the fixed rows of the tables, which are missing after a TRUNCATE and in a copy of the tables without their rows.
func (m *Migrations) fillTables(ctx context.Context) error {
	for _, setting := range []struct {
		name  string
		value int
	}{{"schema", Version}, {"schema_compatible", compatible}} {
		var value string
		err := m.db.QueryRowContext(ctx, fmt.Sprintf("SELECT value FROM %s WHERE name = '%s'", m.table.Settings, setting.name)).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			_, err = m.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (name, value) VALUES ('%s', '%d')", m.table.Settings, setting.name, setting.value))
		}
		if err != nil {
			return err
		}
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

// makeIndexes creates the indexes for claiming by rows, unless all of them exist.
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
