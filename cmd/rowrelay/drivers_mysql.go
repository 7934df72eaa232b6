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
)

// openMySQL opens MySQL and MariaDB.
func openMySQL(ctx context.Context, database config.Database, _ bool) (*sql.DB, error) {
	settings, err := mysqlSettings(database.Secret())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	connector, err := mysql.NewConnector(settings)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	db := sql.OpenDB(readCommitted{connector})
	var seconds int // after which the server ends idle connections
	if err := db.QueryRowContext(ctx, "SELECT @@wait_timeout").Scan(&seconds); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	db.SetConnMaxIdleTime(min(maxIdleTime, time.Duration(seconds)*time.Second/2))
	return db, nil
}

// readCommitted is how every connection works: the servers' own default locks
// the gaps between rows, and producers then wait for each other. It isn't a
// parameter because the variable has another name on each server.
type readCommitted struct{ driver.Connector }

func (c readCommitted) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	const set = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, set, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("set the transactions' isolation: %w", err), conn.Close())
	}
	return conn, nil
}
