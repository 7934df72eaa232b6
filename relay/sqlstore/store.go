// Package sqlstore keeps a relay's messages in a SQL database: a relay.Store
// over database/sql, with any driver, and a dialect.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/sqlstore/mysql"
	"github.com/rowrelay/rowrelay/relay/sqlstore/oracle"
	"github.com/rowrelay/rowrelay/relay/sqlstore/postgres"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlite"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlserver"
)

// schemaVersion is what the tables have to be.
const schemaVersion = "1"

// Options say which table is meant.
type Options struct {
	// Table is the outbox table's name, with or without a schema. Defaults to
	// "outbox".
	Table string

	// LongestTransaction is how long a producer's transaction may stay open
	// without its messages losing their place, where the database doesn't show
	// which ones are open: on MySQL and MariaDB, if this user lacks the right to
	// see that, or if several servers write. Messages of a longer transaction are
	// delivered all the same, up to ten minutes later. Defaults to a minute.
	LongestTransaction time.Duration

	// Operator says that nothing is claimed by this store: it is for the calls of a
	// relay.Operator alone. Then Open doesn't try whether the server passes over locked
	// rows.
	Operator bool

	// Reader reads pages by a driver's own means: relaypgx.Reader{} for PostgreSQL
	// through pgx. Defaults to none: database/sql, which costs more a message.
	Reader backend.Reader
}

// Store is a table of messages in a SQL database. Its methods may be called
// concurrently, save Read, Scan and Due, which one goroutine calls in turn.
// Each relay has a Store of its own.
type Store struct {
	db       *sql.DB
	dialect  dialect.Dialect // for its errors
	table    dialect.Table
	backend  backend.Backend
	traits   backend.Traits
	noLanes  string // why the table can't be claimed by lanes; empty where it can
	horizon  snapshots
	observed *observed // in the place of snapshots, where there are none
	longest  time.Duration
	reader   backend.Reader // nil for database/sql
	operator bool           // nothing is claimed
	findings []Finding      // what there is to know of the server
	habits   habits
	emptied  emptied
	owed     int64 // LateAfter of a peek whose read has not returned a page yet; -1 for none
	pool     poolWatch
	handling handling
	purges   purges
	claims   sync.RWMutex  // held for reading by settles of claimed rows, for writing by extensions
	writing  chan struct{} // held by a writer, where there is one at a time
}

var (
	_ relay.Store     = (*Store)(nil)
	_ relay.Operator  = (*Store)(nil)
	_ relay.TxStore   = (*Store)(nil)
	_ relay.Journaler = (*Store)(nil)
)

// Open returns the store of a table that is there already, and fails with
// relay.ErrNoSchema if it isn't, or is of another version. It never closes db.
//
// A relay uses up to eight connections at a time, of which database/sql by default
// closes all but two whenever they are idle, and opens them again: call
// db.SetMaxIdleConns(8), or it costs twice as much where messages come one by one.
//
// On PostgreSQL the store uses short transactions, and works behind a pooler. On SQLite db has to be in WAL mode, with a
// busy timeout and transactions that begin with BEGIN IMMEDIATE; else Open fails, and says how to open the file. On MySQL and MariaDB it sees to its isolation itself, and needs
// the right PROCESS to see which transactions are open; see LongestTransaction.
//
// Open asks the server what it is, tries whether it passes over locked rows, and
// fails if it is too old, or too slow to tell.
func Open(ctx context.Context, db *sql.DB, d dialect.Dialect, options Options) (*Store, error) {
	s, err := open(db, d, options)
	if err != nil {
		return nil, err
	}
	if d.Name() == dialect.SQLite().Name() {
		if err := sqlite.CheckPool(ctx, db); err != nil {
			return nil, fmt.Errorf("open table %s: %w", s.table, dialect.Explain(ctx, db, d, err))
		}
	}
	fit, err := s.fit(ctx)
	if err != nil {
		return nil, fmt.Errorf("open table %s: %w", s.table, dialect.Explain(ctx, db, d, err))
	}
	if err := s.checkVersion(ctx); err != nil {
		return nil, dialect.Explain(ctx, db, d, err)
	}
	return s, s.begin(ctx, fit.Unordered)
}

// use goes on with the variant of the dialect that fits the server.
func (s *Store) use(d dialect.Dialect) {
	s.dialect, s.backend = d, backendOf(s.db, d, s.table, s.reader)
	s.traits = s.backend.Traits()
	if limited, rowsOnly := d.(dialect.RowsOnly); rowsOnly {
		s.noLanes = limited.NoLanes()
	}
	s.habits.walkAs(s.traits.Walk)
}

// backendOf returns the backend of a dialect's database, one of those that ByName knows.
func backendOf(db *sql.DB, d dialect.Dialect, table dialect.Table, reader backend.Reader) backend.Backend {
	switch d.Name() {
	case dialect.Postgres().Name():
		return postgres.New(db, d, table, reader)
	case dialect.SQLite().Name():
		return sqlite.New(db, d, table)
	case dialect.MySQL().Name(), dialect.MariaDB().Name(), dialect.TiDB().Name():
		return mysql.New(db, d, table)
	case dialect.SQLServer().Name():
		return sqlserver.New(db, d, table)
	default:
		return oracle.New(db, d, table)
	}
}

// begin learns which ids were given out before.
func (s *Store) begin(ctx context.Context, unordered bool) error {
	given, err := s.given(ctx)
	if err != nil {
		return err
	}
	s.horizon.learn("", given)
	return s.beginObserving(ctx, given, unordered)
}

func (s *Store) given(ctx context.Context) (int64, error) {
	var given int64
	if err := backend.One(ctx, s.db, s.traits.Queries.LastID, &given); err != nil {
		return 0, fmt.Errorf("read the last id of table %s: %w", s.table, err)
	}
	return given, nil
}

// beginLanes learns which server is going to be read, and once more which ids it gave
// out: another one may have answered when the table was opened. Should yet another
// answer the second question, the first page tells.
func (s *Store) beginLanes(ctx context.Context) error {
	first, err := s.backend.BeginLanes(ctx)
	if err != nil {
		return fmt.Errorf("adopt claiming by lanes on table %s: %w", s.table, err)
	}
	given, err := s.given(ctx)
	if err != nil {
		return err
	}
	s.horizon.learn(first.Server, given)
	if s.observed != nil {
		s.observed.restart(first.Server)
		s.observed.found(given, time.Now())
	}
	return nil
}

func open(db *sql.DB, d dialect.Dialect, options Options) (*Store, error) {
	if db == nil {
		return nil, errors.New("open an outbox: the database is nil: give the *sql.DB that sql.Open returned")
	}
	if d == nil {
		return nil, errors.New("open an outbox: the dialect is nil: give dialect.Postgres() or that of your database")
	}
	if _, err := dialect.ByName(d.Name()); err != nil {
		return nil, fmt.Errorf("open an outbox: %w", err)
	}
	s := &Store{db: db, dialect: d, writing: make(chan struct{}, 1), owed: -1, longest: options.LongestTransaction, reader: options.Reader, operator: options.Operator}
	if s.longest <= 0 {
		s.longest = defaultLongestTransaction
	}
	var err error
	s.table, err = dialect.ParseTable(cmp.Or(options.Table, dialect.DefaultTable))
	return s, err
}

func (s *Store) checkVersion(ctx context.Context) error {
	var version string
	query := s.dialect.SchemaVersion(s.table)
	err := s.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&version)
	switch {
	case s.dialect.Missing(err), errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("open table %s: %w: it isn't there; run rowrelay migrate up", s.table, relay.ErrNoSchema)
	case err != nil:
		return fmt.Errorf("open table %s: %w", s.table, err)
	case version != schemaVersion:
		return fmt.Errorf("open table %s: %w: it is of version %s, and this release needs %s; run rowrelay migrate up, or use the release that fits",
			s.table, relay.ErrNoSchema, version, schemaVersion)
	default:
		return nil
	}
}
