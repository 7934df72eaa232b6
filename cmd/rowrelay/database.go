package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
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

// databaseDriver opens a kind of database: each drivers_*.go has some. With create it may make an SQLite file.
type databaseDriver struct {
	dialect func() dialect.Dialect
	open    func(ctx context.Context, database config.Database, create bool) (*sql.DB, error)
}

// drivers are the databases that this program was built with.
func drivers() map[string]databaseDriver {
	return withOracle(map[string]databaseDriver{
		config.Postgres: {dialect.Postgres, openPostgres}, config.MySQL: {dialect.MySQL, openMySQL}, config.MariaDB: {dialect.MariaDB, openMySQL},
		config.SQLServer: {dialect.SQLServer, openSQLServer}, config.SQLite: {dialect.SQLite, openSQLite},
	})
}

// openDatabase opens a database and makes sure that it answers.
func openDatabase(ctx context.Context, database config.Database, create bool) (*sql.DB, dialect.Dialect, error) {
	driver, ok := drivers()[database.Kind()]
	if !ok {
		return nil, nil, fmt.Errorf("open %s: this program was built without a driver for %s; build one that has it with go build -tags %[2]s ./cmd/rowrelay", database, database.Kind())
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	db, err := driver.open(limited, database, create)
	if err != nil {
		return nil, nil, connectError(database, err)
	}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	if err := db.PingContext(limited); err != nil {
		return nil, nil, errors.Join(connectError(database, err), db.Close())
	}
	return db, driver.dialect(), nil
}

// openStore opens a source's table for a relay.
func openStore(ctx context.Context, source config.Source, db *sql.DB, d dialect.Dialect) (*sqlstore.Store, error) {
	return sqlstore.Open(ctx, db, d, sqlstore.Options{
		Table: source.Table, LongestTransaction: source.LongestTransaction,
		Reader: relaypgx.Reader{}, // of other drivers it reads nothing
	})
}

// withOperator opens a table for an operator's work on it.
func withOperator(ctx context.Context, source config.Source, work func(storage.Operator) error) (err error) {
	db, d, err := openDatabase(ctx, source.Database, false)
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
