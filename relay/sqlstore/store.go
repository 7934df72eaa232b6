// Package sqlstore implements storage.Store on a SQL database. It uses database/sql
// with any driver, and a [dialect.Dialect] for the kind of the database.
//
// The package has the code that all databases share; a [backend.Backend] has the
// statements of one database. store.go opens a table, detects what the server supports,
// and repeats calls while the database is busy. lanes.go has leases, read.go has pages
// and scans, settle.go has settlements, and rows.go has claiming by rows. frontier.go
// determines above which id rows may still appear, on PostgreSQL and SQLite;
// frontier_opentx.go does this for the other databases. operator.go, find.go, replay.go,
// control.go and check.go have the methods that operators call.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// schemaVersion is the required version of the tables.
const schemaVersion = "2"

// Options configure a Store.
type Options struct {
	// Table is the outbox table's name, with or without a schema. Defaults to "outbox".
	Table string

	// LongestTransaction is used only if the store can't list the open transactions, because the user lacks the privilege (PROCESS on
	// MySQL and MariaDB, SELECT on two views on Oracle) or because several servers write. The store then assumes that each transaction
	// ends within this time. Messages of a longer transaction may be delivered out of order, up to ten minutes after the commit.
	// Defaults to one minute.
	LongestTransaction time.Duration

	// Operator is set if the store is used only for the methods of a storage.Operator. Such a store claims nothing, so Open doesn't test
	// whether the server supports SKIP LOCKED.
	Operator bool

	// Reader reads pages with a driver's own API, which costs less for each message than database/sql. The only implementation is
	// relaypgx.Reader{}, for PostgreSQL with pgx. If Reader is nil, the store reads with database/sql.
	Reader backend.Reader
}

// Store is a table of messages in a SQL database. Its methods may be called
// concurrently, except Read, Scan, Due and FoundLate: only one call of these four may be
// in progress at a time. Each relay needs its own Store.
type Store struct {
	// Findings are Open's findings about the server. Don't change them. Log each finding that isn't OK.
	Findings []Finding

	db           *sql.DB
	dialect      dialect.Dialect // classifies errors
	table        dialect.Table
	schema       string // the version of the tables
	options      Options
	product      backend.Database
	backend      backend.Backend
	capabilities backend.Capabilities

	// Fields for reading pages.
	frontier  frontier
	sizer     pageSizer
	endOfLane map[int]int64 // for each lane, the id above which the last read found no row; nil if unknown
	pool      poolWatch
	readFrom  string // the epoch of the server that returned the last page: see [storage.Page]

	// Fields for writing.
	writing  chan struct{} // full while a call writes, if only one call may write at a time
	claims   sync.RWMutex  // read-locked by settlements of claimed rows, and write-locked by extensions of claims
	handling handling
	purges   purges

	path string      // the path of the database's file; empty if the database is not a file
	file os.FileInfo // the database's file when the store was opened; nil if the database is not a file

	rowsCounted atomic.Int64 // when the fixed rows (see fixed.go) were last counted, in Unix nanoseconds
}

var (
	_ storage.Store     = (*Store)(nil)
	_ storage.Operator  = (*Store)(nil)
	_ storage.TxStore   = (*Store)(nil)
	_ storage.Journaler = (*Store)(nil)
)

// Open returns the store of an existing table. It fails with storage.ErrNoSchema if the table doesn't exist or has another version.
// The store never closes db.
//
// A relay uses up to eight connections concurrently. By default database/sql keeps only two idle connections, so it closes the others
// and opens them again later, which doubles the cost of each message if messages arrive one by one. So call db.SetMaxIdleConns(8).
//
// On PostgreSQL the store uses short transactions and works with a pooler. The client_encoding must be UTF8. A pgx pool whose
// default_query_exec_mode is exec or simple_protocol needs the settings datestyle=ISO and bytea_output=hex, which are the server's
// defaults; otherwise Open fails. On SQLite the file must be in WAL mode, and the connections need a busy timeout and transactions that
// begin with BEGIN IMMEDIATE; otherwise Open fails with an error that shows how to open the file. On MySQL and MariaDB the store sets
// the isolation level of its transactions itself, and needs the privilege PROCESS to list the open transactions; see LongestTransaction.
//
// Open queries the server's version and tests whether it supports SKIP LOCKED. It fails if the server is too old, or too slow to
// answer.
func Open(ctx context.Context, db *sql.DB, d dialect.Dialect, options Options) (*Store, error) {
	for n := 1; ; n++ {
		s, err := open(ctx, db, d, options)
		if err == nil || n == busyTries || d == nil || !d.ReadOnly(err) {
			return s, err
		}
		dialect.Redial(ctx, db)
	}
}

func open(ctx context.Context, db *sql.DB, d dialect.Dialect, options Options) (*Store, error) {
	s, err := newStore(db, d, options)
	if err != nil {
		return nil, err
	}
	unordered, err := s.detect(ctx, s.restoreLanes)
	if err != nil {
		return nil, fmt.Errorf("open table %s: %w", s.table, dialect.Explain(ctx, db, d, err))
	}
	if pool, checks := s.backend.(backend.PoolChecker); checks {
		if err := pool.CheckPool(ctx); err != nil {
			return nil, fmt.Errorf("open table %s: %w", s.table, dialect.Explain(ctx, db, d, err))
		}
	}
	if !options.Operator {
		if err := s.refuseRowSecurity(ctx); err != nil {
			return nil, fmt.Errorf("open table %s: %w", s.table, dialect.Explain(ctx, db, d, err))
		}
	}
	if err := s.checkVersion(ctx); err != nil {
		return nil, dialect.Explain(ctx, db, d, err)
	}
	if err := s.rememberFile(ctx); err != nil {
		return nil, fmt.Errorf("open table %s: %w", s.table, err)
	}
	given, err := s.lastID(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.openFrontier(ctx, given, unordered); err != nil {
		return nil, err
	}
	return s, nil
}

// notMade returns an error if the store wasn't returned by Open.
func (s *Store) notMade() error {
	if s == nil || s.backend == nil {
		return errors.New("the Store is nil or empty: use what sqlstore.Open returned, after checking its error")
	}
	return nil
}

// newStore checks the arguments without accessing the database.
func newStore(db *sql.DB, d dialect.Dialect, options Options) (*Store, error) {
	if db == nil {
		return nil, errors.New("open an outbox: the database is nil: pass the *sql.DB that sql.Open returned")
	}
	if d == nil {
		return nil, errors.New("open an outbox: the dialect is nil: pass the dialect of your database, from package dialect")
	}
	if options.LongestTransaction <= 0 {
		options.LongestTransaction = defaultLongestTransaction
	}
	s := &Store{db: db, dialect: d, options: options, writing: make(chan struct{}, 1), pool: poolWatch{before: db.Stats().MaxIdleClosed}}
	var err error
	if s.table, err = dialect.ParseTable(cmp.Or(options.Table, dialect.DefaultTable)); err != nil {
		return nil, err
	}
	return s, nil
}

// defaultLongestTransaction exceeds the duration of most transactions that write messages. With a
// larger value, each read would scan more ids for late rows.
const defaultLongestTransaction = time.Minute

// quotedTable returns the table with its names in the quotes that this database's statements use.
func (s *Store) quotedTable() dialect.Table {
	if ticked := s.table.Backquoted(); ticked.Pending == s.capabilities.Pending {
		return ticked
	}
	return s.table
}

// checkVersion returns an error if the tables don't exist, belong to another program, or don't have the version that
// this release needs.
func (s *Store) checkVersion(ctx context.Context) error {
	var version string
	query := s.dialect.SchemaVersion(s.table)
	err := s.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(&version)
	if err != nil {
		if foreign := backend.ForeignOutbox(ctx, s.db, s.quotedTable()); foreign != nil {
			return fmt.Errorf("open table %s: %w", s.table, foreign)
		}
	}
	switch {
	case errors.Is(err, sql.ErrNoRows), err != nil && s.dialect.Missing(err):
		return fmt.Errorf("open table %s: %w: the table does not exist; run rowrelay migrate up", s.table, storage.ErrNoSchema)
	case err != nil:
		return fmt.Errorf("open table %s: %w", s.table, err)
	}
	s.schema = version
	if version == schemaVersion {
		return nil
	}
	has, err := strconv.Atoi(version)
	if knows, _ := strconv.Atoi(schemaVersion); err == nil && has > knows {
		if s.isCompatible(ctx, knows) {
			return nil
		}
		return fmt.Errorf("open table %s: %w: the schema has version %s, and this release supports %s; use the release that created it or a newer one",
			s.table, storage.ErrNewerSchema, version, schemaVersion)
	}
	return fmt.Errorf("open table %s: %w: the schema has version %s, and this release needs %s; run rowrelay migrate up",
		s.table, storage.ErrNoSchema, version, schemaVersion)
}

// isCompatible reports whether this release may use the tables, which have a newer schema version. Its argument is the schema version of
// this release. A migration that only adds to the tables leaves them usable for older releases. In the setting schema_compatible, the
// migration stores the lowest schema version of these releases. Without the setting, no older release may use the tables.
func (s *Store) isCompatible(ctx context.Context, knows int) bool {
	var text string
	err := s.db.QueryRowContext(ctx, "SELECT value FROM "+s.quotedTable().Settings+" WHERE name = 'schema_compatible'").Scan(&text)
	lowest, notANumber := strconv.Atoi(text)
	return err == nil && notANumber == nil && knows >= lowest
}

// detect queries the server's version and settings, tests SKIP LOCKED, and then sets the
// dialect's variant for this server, the findings and the backend. It calls beforeTrial
// before it tests SKIP LOCKED. It returns the field Unordered of the server's [dialect.Fit].
func (s *Store) detect(ctx context.Context, beforeTrial func(context.Context) error) (unordered bool, err error) {
	fitting, differs := s.dialect.(dialect.Fitting)
	server := dialect.Server{Facts: map[string]string{}, Skips: true}
	var trial *dialect.Trial
	if differs {
		var name, value string
		var facts backend.Query
		facts, trial = fitting.Server(s.table)
		if err := backend.All(ctx, s.db, facts, func() { server.Facts[strings.ToLower(name)] = value }, &name, &value); err != nil {
			return false, fmt.Errorf("identify the server: %w", err)
		}
		if _, err := fitting.Fit(server); err != nil { // report unsuitable settings now, because the trial's error may be less clear
			return false, err
		}
	}
	if err := beforeTrial(ctx); err != nil {
		return false, err
	}
	if trial != nil {
		if server.Skips, err = s.skips(ctx, trial); err != nil {
			return false, fmt.Errorf("test whether the server skips locked rows: %w", err)
		}
	}
	if differs {
		fit, err := fitting.Fit(server)
		if err != nil {
			return false, err
		}
		for _, note := range fit.Notes {
			s.Findings = append(s.Findings, Finding(note))
		}
		s.dialect, unordered = fit.Dialect, fit.Unordered
	}
	var known bool
	if s.product, _, known = databases.Of(s.dialect.Name()); !known {
		return false, fmt.Errorf("no backend supports the dialect %q", s.dialect.Name())
	}
	s.backend = s.product.New(s.db, s.dialect, s.table, s.options.Reader)
	s.capabilities = s.backend.Capabilities()
	return unordered, nil
}

// Limits of the trial of SKIP LOCKED. A server that can't skip locked rows returns an error
// after about a second, because [dialect.Trial] limits the wait for locks. A trial that takes
// longer than trialPatience shows only that the server is slow.
const (
	trialPatience = 5 * time.Second
	trialTries    = 3
)

// errTooSlow is the error of [Store.skips] if each attempt took longer than trialPatience.
var errTooSlow = fmt.Errorf("the test took longer than %v in each of %d attempts: try again when the server is less busy", trialPatience, trialTries)

// skips reports whether the server skips locked rows. It repeats a trial that has timed
// out. For an operator's store it returns true without a trial.
func (s *Store) skips(ctx context.Context, trial *dialect.Trial) (skips bool, err error) {
	if s.options.Operator {
		return true, nil
	}
	if s.db.Stats().MaxOpenConnections == 1 {
		return false, errors.New("the pool allows one connection, and a relay needs at least two (see SetMaxOpenConns)")
	}
	for range trialTries {
		within, cancel := context.WithTimeout(ctx, trialPatience)
		skips, err = s.tryToSkip(within, trial)
		slow := within.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if !slow {
			return skips, err
		}
	}
	return false, errTooSlow
}

// tryToSkip makes one trial. One transaction locks a row; a second one selects this row and another row with SKIP
// LOCKED. The server skips locked rows if the second transaction gets only the other row, or no row at all (a relay may
// have locked the other row). A lock timeout or a syntax error means that the server doesn't skip locked rows.
//
// tryToSkip also returns true if the trial can't be made because the tables are missing, the first row is already
// locked, or the user may not lock rows. A user who may not lock rows can't run a relay, but may read the status.
func (s *Store) tryToSkip(ctx context.Context, trial *dialect.Trial) (skips bool, err error) {
	err = s.inTrial(ctx, trial, func(hold *sql.Tx) error {
		var row string
		if err := backend.All(ctx, hold, trial.Hold, func() {}, &row); err != nil {
			return err
		}
		var passed []string
		err := s.inTrial(ctx, trial, func(pass *sql.Tx) error {
			return backend.All(ctx, pass, trial.Pass, func() { passed = append(passed, row) }, &row)
		})
		skips = err == nil && (len(passed) == 0 || slices.Equal(passed, []string{trial.Want}))
		return nil
	})
	if s.dialect.Missing(err) || s.dialect.Denied(err) || s.dialect.Busy(err) {
		return true, nil
	}
	return skips, err
}

// inTrial runs the function `work` in a transaction that limits the wait for locks, and then resets
// the session's limit.
func (s *Store) inTrial(ctx context.Context, trial *dialect.Trial, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, s.db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, trial.Begin, func(tx *sql.Tx) (err error) {
		defer func() {
			for _, query := range trial.End {
				_, endErr := backend.Exec(ctx, tx, query)
				err = errors.Join(err, endErr)
			}
		}()
		return work(tx)
	})
}

// Limits of the attempts while the database is busy. They are low, because a caller can
// do other work before it repeats the call.
const (
	busyTries    = 4                     // maximum number of attempts
	busyPause    = 20 * time.Millisecond // maximum pause before the second attempt; later pauses are longer
	busyPatience = time.Second           // after this time, no further attempt is made
)

// try calls the function `work`, which must change nothing when it fails. While the database is busy, try
// repeats the call. If the server is read-only, it repeats the call over a new connection. The errors of try begin with the name of the
// operation, which is the argument `what`.
func try[T any](ctx context.Context, s *Store, what string, work func() (T, error)) (none T, _ error) {
	if err := s.notMade(); err != nil {
		return none, err
	}
	if err := s.sameFile(); err != nil {
		return none, fmt.Errorf("%s %s: %w", what, s.table, err)
	}
	start := time.Now()
	for n := 1; ; n++ {
		value, err := work()
		if err == nil {
			return value, nil
		}
		if s.dialect.Missing(err) {
			return none, fmt.Errorf("%s %s: %w: %w", what, s.table, storage.ErrNoSchema, err)
		}
		readOnly := s.dialect.ReadOnly(err)
		switch {
		case readOnly: // the host name may resolve to another server now
			dialect.Redial(ctx, s.db)
		case s.dialect.TimedOut(err):
			return none, fmt.Errorf("%s %s: %w: %w", what, s.table, storage.ErrTimeout, err)
		case s.dialect.Invalid(err):
			return none, fmt.Errorf("%s %s: %w: %w%s", what, s.table, storage.ErrInvalid, err, hintOf(err))
		case s.dialect.Refused(err):
			return none, fmt.Errorf("%s %s: %w: %w%s", what, s.table, storage.ErrRefused, err, hintOf(err))
		case !s.dialect.Busy(err):
			return none, fmt.Errorf("%s %s: %w%s", what, s.table, err, hintOf(err))
		}
		switch over := n == busyTries || time.Since(start) > busyPatience; {
		case over && readOnly:
			return none, fmt.Errorf("%s %s: %w%s", what, s.table, err, hintOf(err))
		case over:
			return none, fmt.Errorf("%s %s: %w: %w", what, s.table, storage.ErrBusy, err)
		}
		select {
		case <-ctx.Done():
			return none, fmt.Errorf("%s %s: %w", what, s.table, ctx.Err())
		case <-time.After(rand.N(busyPause * time.Duration(n))):
		}
	}
}

// hintOf returns the DETAIL and the HINT of a PostgreSQL error. The errors of pgx and lib/pq have fields with these names, but their texts
// don't contain the fields' values. If the server rejected a value, hintOf omits the DETAIL, because it contains values of the row.
func hintOf(err error) (text string) {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	fields := reflect.Indirect(reflect.ValueOf(coded))
	if fields.Kind() != reflect.Struct {
		return ""
	}
	for _, name := range []string{"Detail", "Hint"} {
		field := fields.FieldByName(name)
		ofValues := name == "Detail" && (strings.HasPrefix(coded.SQLState(), "22") || strings.HasPrefix(coded.SQLState(), "23"))
		if field.IsValid() && field.Kind() == reflect.String && field.String() != "" && !ofValues {
			text += "; " + strings.ToUpper(name) + ": " + field.String()
		}
	}
	return text
}

// write calls try for statements that write. If the database allows only one writer at a time, callers queue. The
// function `work` returns the number of its transaction, or 0 if the transaction has none. If there is a number,
// write reports it to the frontier.
func write[T any](ctx context.Context, s *Store, what string, work func() (value T, xid uint64, err error)) (none T, err error) {
	if err := s.notMade(); err != nil {
		return none, err
	}
	if s.capabilities.Frontier == backend.OneWriter {
		if err := s.turn(ctx); err != nil {
			return none, fmt.Errorf("%s %s: %w", what, s.table, err)
		}
		defer func() { <-s.writing }()
	}
	return try(ctx, s, what, func() (T, error) {
		began := s.frontier.before()
		value, xid, err := work()
		if err == nil && xid != 0 {
			s.frontier.wrote(xid, began)
		}
		return value, err
	})
}

// turn waits until no other call of this store writes. It is used if the database allows only one writer at a
// time. The caller ends its turn by receiving from s.writing. Without this queue writers would lose time:
// SQLite waits for its lock by polling, and a writer that pauses between two polls doesn't notice that the lock is free.
func (s *Store) turn(ctx context.Context) error {
	select {
	case s.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
