package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/app"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

const connectTimeout = 10 * time.Second

// errURL means that a driver doesn't understand the URL, whatever the server
// would say.
var errURL = errors.New("the URL isn't understood")

// opener opens a database; there is one in each drivers_*.go. With create it
// may make an SQLite file.
type opener func(ctx context.Context, database config.Database, create bool) (*sql.DB, error)

// openers are the databases that this program was built with.
func openers() map[string]opener {
	return withOracle(map[string]opener{
		config.Postgres: openPostgres, config.MySQL: openMySQL, config.MariaDB: openMySQL,
		config.SQLServer: openSQLServer, config.SQLite: openSQLite,
	})
}

// openDatabase opens a database and makes sure that it answers.
func openDatabase(ctx context.Context, database config.Database, create bool) (*sql.DB, dialect.Dialect, error) {
	open, ok := openers()[database.Kind()]
	if !ok {
		return nil, nil, fmt.Errorf("open %s: this program was built without a driver for %s; build one that has it with go build -tags %[2]s ./cmd/rowrelay", database, database.Kind())
	}
	d, err := dialect.ByName(database.Kind())
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	db, err := open(limited, database, create)
	if err != nil {
		return nil, nil, connectError(database, err)
	}
	if err := db.PingContext(limited); err != nil {
		return nil, nil, errors.Join(connectError(database, err), db.Close())
	}
	return db, d, nil
}

// openTable opens a source's table for the daemon.
func openTable(ctx context.Context, source config.Source) (app.Table, error) {
	db, store, err := openStore(ctx, source)
	if err != nil {
		return app.Table{}, err
	}
	listener, err := listenerOf(source)
	if err != nil {
		return app.Table{}, errors.Join(err, db.Close())
	}
	return app.Table{Store: store, Listener: listener, Warnings: warnings(store.Findings()), Close: db.Close}, nil
}

// warnings are the findings that aren't well.
func warnings(findings []sqlstore.Finding) (lines []string) {
	for _, f := range findings {
		if !f.OK {
			lines = append(lines, f.String())
		}
	}
	return lines
}

// listenerOf is what wakes the source's relay, or nil where it polls only.
func listenerOf(source config.Source) (relay.Listener, error) {
	if source.Listen == config.Off || source.Database.Polled() {
		return nil, nil
	}
	return listenPostgres(source)
}

func openStore(ctx context.Context, source config.Source) (*sql.DB, *sqlstore.Store, error) {
	db, d, err := openDatabase(ctx, source.Database, false)
	if err != nil {
		return nil, nil, err
	}
	store, err := openStoreOn(ctx, source, db, d)
	if err != nil {
		return nil, nil, errors.Join(explain(source, err), db.Close())
	}
	return db, store, nil
}

func openStoreOn(ctx context.Context, source config.Source, db *sql.DB, d dialect.Dialect) (*sqlstore.Store, error) {
	return sqlstore.Open(ctx, db, d, sqlstore.Options{
		Table: source.Table, LongestTransaction: source.LongestTransaction,
		Reader: relaypgx.Reader{}, // of other drivers it reads nothing
	})
}

// withOperator opens a table for an operator's work on it.
func withOperator(ctx context.Context, source config.Source, work func(relay.Operator) error) (err error) {
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

// refuseUndelivered returns an error if a table has messages that were not
// delivered.
func refuseUndelivered(ctx context.Context, source config.Source) error {
	return withOperator(ctx, source, func(operator relay.Operator) error {
		status, err := operator.Status(ctx)
		if err != nil {
			return err
		}
		left := int64(0)
		for state, count := range status.Counts {
			if state != relay.StateDone {
				left += count
			}
		}
		if left > 0 {
			return fmt.Errorf("table %s has %d messages that were not delivered, which would be lost: deliver them first"+
				" (rowrelay run --drain), or give --discard-messages", source.Table, left)
		}
		return nil
	})
}

// refuseLiving fails while relays work on the table.
func refuseLiving(ctx context.Context, source config.Source) error {
	return withOperator(ctx, source, func(operator relay.Operator) error {
		status, err := operator.Status(ctx)
		if err != nil {
			return err
		}
		var living []string
		for _, r := range status.Relays {
			if r.Alive {
				living = append(living, r.Name)
			}
		}
		if len(living) > 0 {
			return fmt.Errorf("relays work on table %s: stop them first (%s); one that died counts until its lease has ended",
				source.Table, strings.Join(living, ", "))
		}
		return nil
	})
}
