package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// openMySQL opens MySQL and MariaDB.
func openMySQL(ctx context.Context, database config.Database, as pool) (*sql.DB, error) {
	connector, err := newRenewing(database, func(database config.Database) (driver.Connector, error) {
		settings, err := mysqlSettings(database.Secret())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errURL, err)
		}
		connector, err := mysql.NewConnector(settings)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errURL, err)
		}
		return session{connector, sessionSettings(database.Kind(), as.limit)}, nil
	})
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	var seconds int // after which the server ends idle connections
	if err := db.QueryRowContext(ctx, "SELECT @@wait_timeout").Scan(&seconds); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.SetConnMaxIdleTime(min(maxIdleTime, time.Duration(seconds)*time.Second/2))
	return db, nil
}

// sessionSettings are for every connection. Transactions read what is committed: the servers' own default locks
// the gaps between rows, and producers then wait for each other. It isn't a
// parameter because the variable has another name on each server. And lists of keys are looked up by an index, however long.
//
// A limit bounds statements on the server, which continues to run one whose caller has given up; 0 is none, whatever the server's is.
func sessionSettings(kind string, limit time.Duration) []string {
	set := []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION autocommit = 1 /*!80000 , SESSION range_optimizer_max_mem_size = 0 */", // MariaDB has none, and skips this
	}
	if kind == dialect.MariaDB().Name() {
		return append(set, fmt.Sprintf("SET SESSION max_statement_time = %g", limit.Seconds()))
	}
	return append(set, fmt.Sprintf("SET SESSION max_execution_time = %d", limit.Milliseconds()))
}

// session sets up each connection.
type session struct {
	driver.Connector
	settings []string
}

func (c session) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, set := range c.settings {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, set, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", set, err), conn.Close())
		}
	}
	return conn, nil
}

func hintMySQL(err error) string {
	refused, found := errors.AsType[*mysql.MySQLError](err)
	if !found {
		return ""
	}
	return map[uint16]string{
		1792: "transaction_read_only (tx_read_only on MariaDB) is ON for new sessions: run SET GLOBAL transaction_read_only = OFF",
		1045: hintPassword,
		1044: "the user has no right to this database: grant it, or check the database's name in the URL",
		1049: hintDatabase,
		1040: hintFull,
		1130: "the server refuses users from this host: create the user for it",
		1226: "the user has no connection left: raise its MAX_USER_CONNECTIONS, or close some",
	}[refused.Number]
}
