package main

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/internal/app"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const connectTimeout = 10 * time.Second

// maxConnections is the size of a pool. A relay fetches messages, stores their outcomes
// and renews leases concurrently. More than ten connections don't make a relay faster.
const maxConnections = 10

// maxIdleTime is how long a connection stays open without use, if the server doesn't close it sooner.
const maxIdleTime = 5 * time.Minute

// relayIdleTime is how long a server keeps an idle session of a relay. If the network drops the packets of a relay that is in a
// transaction, the server keeps the transaction's locks for this time. Meanwhile no other relay can take over the locked lanes.
const relayIdleTime = 20 * time.Second

// errURL means that the driver can't parse the URL.
var errURL = errors.New("the URL can't be parsed")

// pool has options for opening a database.
type pool struct {
	create bool          // create a missing SQLite file
	most   int           // the largest number of connections; 0: maxConnections
	idle   time.Duration // how long MySQL and MariaDB keep a session that runs no statement; 0: the server's setting
	limit  time.Duration // the maximum duration of a statement, on servers that don't end a statement when its call is cancelled; 0: no limit
}

// databaseDriver opens one kind of database. The drivers are in drivers_*.go.
type databaseDriver struct {
	dialect dialect.Dialect
	open    func(ctx context.Context, database config.Database, as pool) (*sql.DB, error)
	hint    func(error) string // returns a hint for an error of the server, or ""; nil if this kind of database has no hints
}

// drivers returns the databases that this program was built with.
func drivers() []databaseDriver {
	return append([]databaseDriver{
		{dialect.Postgres(), openPostgres, hintPostgres}, {dialect.MySQL(), openMySQL, hintMySQL}, {dialect.MariaDB(), openMySQL, hintMySQL},
		{dialect.SQLServer(), openSQLServer, hintSQLServer}, {dialect.SQLite(), openSQLite, nil},
	}, optionalDrivers()...)
}

// driverOf returns the driver of a kind of database, if this program was built with one.
func driverOf(kind string) (driver databaseDriver, found bool) {
	i := slices.IndexFunc(drivers(), func(driver databaseDriver) bool { return driver.dialect.Name() == kind })
	if i < 0 {
		return databaseDriver{}, false
	}
	return drivers()[i], true
}

// openDatabase opens a database and pings it.
func openDatabase(ctx context.Context, database config.Database, as pool) (*sql.DB, dialect.Dialect, error) {
	driver, ok := driverOf(database.Kind())
	if !ok {
		return nil, nil, fmt.Errorf("open %s: this program was built without a driver for %s; build one that has it with go build -tags %[2]s ./cmd/rowrelay", database, database.Kind())
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	db, err := driver.open(limited, database, as)
	if err != nil {
		return nil, nil, connectError(database, err)
	}
	most := cmp.Or(as.most, maxConnections)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	if err := db.PingContext(limited); err != nil {
		return nil, nil, errors.Join(connectError(database, err), db.Close())
	}
	return db, driver.dialect, nil
}

// renewing is a connector for a login that may change. For each new connection it gets the current login, and rereads the
// certificates that the URL names.
type renewing struct {
	driver.Connector // for the initial login
	database         config.Database
	refuses          func(error) bool // whether an error means that the server refuses the login
	make             func(config.Database) (driver.Connector, error)
}

// Connect tries once more if the server refuses the login and a new login exists.
func (r renewing) Connect(ctx context.Context) (driver.Conn, error) {
	database, stale := r.database.Current(ctx)
	conn, err := r.connect(ctx, database)
	if err == nil || !r.refuses(err) || !r.database.Renewable() {
		return conn, err
	}
	renewed, failed := r.database.Refused(ctx)
	if renewed.Secret() != database.Secret() {
		return r.connect(ctx, renewed)
	}
	return nil, errors.Join(err, cmp.Or(failed, stale))
}

func (r renewing) connect(ctx context.Context, database config.Database) (driver.Conn, error) {
	connector, err := r.make(database)
	if err != nil {
		return nil, err
	}
	return connector.Connect(ctx)
}

// newRenewing returns a connector that calls the function make for each new connection, and an error if make can't parse
// the URL.
func newRenewing(database config.Database, refuses func(error) bool, make func(config.Database) (driver.Connector, error)) (driver.Connector, error) {
	connector, err := make(database)
	return renewing{connector, database, refuses, make}, err
}

// openStore opens a source's table for a relay.
func openStore(ctx context.Context, source config.Source, db *sql.DB, d dialect.Dialect) (*sqlstore.Store, error) {
	return sqlstore.Open(ctx, db, d, storeOptions(source))
}

func storeOptions(source config.Source) sqlstore.Options {
	return sqlstore.Options{
		Table: source.Table, LongestTransaction: source.LongestTransaction,
		Reader: relaypgx.Reader{}, // has no effect with drivers other than pgx
	}
}

// These are the numbers of connections in the admin page's two pools. Each concurrent read takes one connection. The page and /status each take one
// more connection, to count messages.
const (
	readingConnections = admin.MostReads + 2
	actingConnections  = 4
)

// pageConnectionLife limits the life of the page's connections. After a switchover, the old primary continues to answer
// reads with stale data, and only a new connection reaches the new primary.
const pageConnectionLife = 15 * time.Second

// openPage opens a source's table for the admin page, with one pool for reads and one for changes.
func openPage(ctx context.Context, source config.Source) (page app.PageTable, err error) {
	var opened []*sql.DB
	var known dialect.Dialect
	page.Close = func() (err error) {
		for _, db := range opened {
			err = errors.Join(err, db.Close())
		}
		return err
	}
	open := func(as pool) (storage.Operator, error) {
		db, d, err := openDatabase(ctx, source.Database, as)
		if err != nil {
			return nil, err
		}
		opened, known = append(opened, db), d
		db.SetMaxIdleConns(1)
		db.SetConnMaxLifetime(pageConnectionLife)
		store, err := sqlstore.Open(ctx, db, d, sqlstore.Options{Table: source.Table, Operator: true})
		return store, explain(source, err)
	}
	if page.Reads, err = open(pool{most: readingConnections, limit: admin.ReadTimeout}); err == nil {
		page.Operator, err = open(pool{most: actingConnections})
	}
	if err == nil {
		page.Write, err = writeTo(opened[len(opened)-1], known, source)
	}
	if err != nil {
		return app.PageTable{}, errors.Join(err, page.Close())
	}
	return page, nil
}

// writeTo returns a function that writes a message to the source's table.
func writeTo(db *sql.DB, d dialect.Dialect, source config.Source) (func(context.Context, outbox.Message) error, error) {
	writer, err := outbox.NewWriter(d, outbox.Options{Table: source.Table, Notify: !source.Database.Polled()})
	return func(ctx context.Context, m outbox.Message) error {
		return writer.Write(ctx, outbox.WithoutTransaction(db), m)
	}, err
}

// withOperator opens a table and calls the function work with the table's operator.
func withOperator(ctx context.Context, source config.Source, work func(storage.Operator) error) (err error) {
	db, d, err := openDatabase(ctx, source.Database, pool{})
	if err != nil {
		return err
	}
	defer closing(db, &err)
	store, err := sqlstore.Open(ctx, db, d, sqlstore.Options{Table: source.Table, Operator: true})
	if err != nil {
		return explain(source, err)
	}
	return explain(source, work(store))
}

// closing calls Close, and joins an error of Close to err. Callers defer it.
func closing(closer io.Closer, err *error) {
	if closeErr := closer.Close(); closeErr != nil {
		*err = errors.Join(*err, fmt.Errorf("close the database: %w", closeErr))
	}
}
