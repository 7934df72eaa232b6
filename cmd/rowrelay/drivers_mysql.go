package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// openMySQL opens MySQL and MariaDB.
func openMySQL(ctx context.Context, database config.Database, as pool) (*sql.DB, error) {
	connector, err := newRenewing(database, refusesMySQL, func(database config.Database) (driver.Connector, error) {
		settings, err := mysqlSettings(database.Secret())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errURL, err)
		}
		connector, err := mysql.NewConnector(settings)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errURL, err)
		}
		set := sessionSettings(as.limit)
		if as.idle > 0 {
			set = append(set, fmt.Sprintf("SET SESSION wait_timeout = %d", int(as.idle.Seconds())))
		}
		return session{connector, set}, nil
	})
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	var seconds int // the server ends connections that have been idle for longer
	if err := db.QueryRowContext(ctx, "SELECT @@wait_timeout").Scan(&seconds); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.SetConnMaxIdleTime(min(maxIdleTime, time.Duration(seconds)*time.Second/2))
	return db, nil
}

// sessionSettings returns the statements that set up every connection. Settings that only MySQL or only MariaDB has are in
// comments that the other server skips. A separate statement sets the isolation level, because the name of its variable differs
// between versions.
//
// The argument limit is the longest time that the server runs a statement; 0 means no limit. Without a limit the server
// continues to run a statement whose caller has given up.
func sessionSettings(limit time.Duration) []string {
	set := map[string]string{}
	for _, setting := range dialect.Settings(dialect.MySQL()) {
		value := setting.Value
		switch setting.Name {
		case "max_execution_time":
			value = strconv.FormatInt(limit.Milliseconds(), 10)
		case "max_statement_time":
			value = strconv.FormatFloat(limit.Seconds(), 'f', -1, 64)
		}
		if !strings.HasSuffix(setting.Name, "_isolation") {
			set[setting.Only] += ", SESSION " + setting.Name + " = " + value
		}
	}
	return []string{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET" + set[""][1:] + " /*!80000" + set[dialect.MySQL().Name()] + " */ /*M!" + set[dialect.MariaDB().Name()] + " */"}
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

// refusesMySQL reports whether the server refuses the login.
func refusesMySQL(err error) bool {
	refused, found := errors.AsType[*mysql.MySQLError](err)
	return found && refused.Number == 1045
}

func hintMySQL(err error) string {
	refused, found := errors.AsType[*mysql.MySQLError](err)
	if !found {
		return ""
	}
	return map[uint16]string{
		1792: "transaction_read_only (tx_read_only on MariaDB) is ON for new sessions: run SET GLOBAL transaction_read_only = OFF",
		1045: hintPassword,
		1044: "the user has no privileges on this database: grant them, or check the database's name in the URL",
		1049: hintDatabase,
		1040: hintFull,
		1130: "the server refuses this host: create the user for this host",
		1226: "the user has no free connection: raise its MAX_USER_CONNECTIONS, or close some connections",
	}[refused.Number]
}
