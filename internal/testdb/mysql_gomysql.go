//go:build gomysql

package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/driver" // driver "gomysql", if linked as the Makefile does
	protocol "github.com/go-mysql-org/go-mysql/mysql"
)

// The driver registers itself as "mysql", as the other one does, so it has to be
// linked with another name. It knows no parameters for what tests need: rows
// found are counted by an option of ours, the time zone is set by a driver
// around it.
func init() {
	gomysql.SetDSNOptions(map[string]gomysql.DriverOption{"clientFoundRows": countFoundRows})
	sql.Register("gomysql-utc", inUTC{})
}

func countFoundRows(c *client.Conn, _ string) error {
	c.SetCapability(protocol.CLIENT_FOUND_ROWS)
	return nil
}

type inUTC struct{}

func (inUTC) Open(dsn string) (driver.Conn, error) {
	pool, err := sql.Open("gomysql", dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pool.Close() }()
	conn, err := pool.Driver().Open(dsn)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(context.Background(), "SET time_zone = '+00:00'", nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
