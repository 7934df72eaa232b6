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
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const connectTimeout = 10 * time.Second

// maxConnections of a pool: a relay reads, settles and leases at the same time,
// and handlers may add to that; more than this help nobody.
const maxConnections = 10

// maxIdleTime of a connection, where the server doesn't end it sooner.
const maxIdleTime = 5 * time.Minute

// errURL means that a driver doesn't understand the URL, whatever the server
// would say.
var errURL = errors.New("the URL isn't understood")

// pool is what a database is opened for.
type pool struct {
	create bool          // an SQLite file may be made
	most   int           // connections; 0: maxConnections
	limit  time.Duration // of a statement, where ending a call here doesn't end it on the server; 0: none
}

// databaseDriver opens a kind of database: each drivers_*.go has some.
type databaseDriver struct {
	dialect dialect.Dialect
	open    func(ctx context.Context, database config.Database, as pool) (*sql.DB, error)
	hint    func(error) string // what to do about an error of the server, by its own code; nil: nothing is known
}

// drivers are the databases that this program was built with.
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

// openDatabase opens a database and makes sure that it answers.
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

// renewing connects by the login that the database's file has at the time, and by the certificates that its URL names.
type renewing struct {
	driver.Connector // of the URL as it was at the start
	database         config.Database
	make             func(config.Database) (driver.Connector, error)
}

func (r renewing) Connect(ctx context.Context) (driver.Conn, error) {
	connector, err := r.make(r.database.Current())
	if err != nil {
		return nil, err
	}
	return connector.Connect(ctx)
}

// newRenewing fails where the URL isn't understood.
func newRenewing(database config.Database, make func(config.Database) (driver.Connector, error)) (driver.Connector, error) {
	connector, err := make(database)
	return renewing{connector, database, make}, err
}

// openStore opens a source's table for a relay.
func openStore(ctx context.Context, source config.Source, db *sql.DB, d dialect.Dialect) (*sqlstore.Store, error) {
	return sqlstore.Open(ctx, db, d, sqlstore.Options{
		Table: source.Table, LongestTransaction: source.LongestTransaction,
		Reader: relaypgx.Reader{}, // of other drivers it reads nothing
	})
}

// Connections for the page: reads take one each, and so does counting, once for the page and once for /status.
const (
	readingConnections = admin.MostReads + 2
	actingConnections  = 4
)

// pageConnectionLife is how long a connection of the page's is used. After a switchover an old primary
// answers reads as before, with what it had then: only a new connection reaches the new primary.
const pageConnectionLife = 15 * time.Second

// openPage opens a source's table for the admin page: for readers, and for operators.
func openPage(ctx context.Context, source config.Source) (page app.PageTable, err error) {
	var opened []*sql.DB
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
		opened = append(opened, db)
		db.SetMaxIdleConns(1)
		db.SetConnMaxLifetime(pageConnectionLife)
		store, err := sqlstore.Open(ctx, db, d, sqlstore.Options{Table: source.Table, Operator: true})
		return store, explain(source, err)
	}
	if page.Reads, err = open(pool{most: readingConnections, limit: admin.ReadTimeout}); err == nil {
		page.Operator, err = open(pool{most: actingConnections})
	}
	if err != nil {
		return app.PageTable{}, errors.Join(err, page.Close())
	}
	return page, nil
}

// withOperator opens a table for an operator's work on it.
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

// closing closes at the end of a function and joins what goes wrong to its
// error.
func closing(closer io.Closer, err *error) {
	if closeErr := closer.Close(); closeErr != nil {
		*err = errors.Join(*err, fmt.Errorf("close the database: %w", closeErr))
	}
}
