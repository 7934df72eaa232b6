//go:build gomysql

package testdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/driver" // driver "gomysql", if linked as in the Makefile
	protocol "github.com/go-mysql-org/go-mysql/mysql"
)

// This driver registers itself as "mysql", like the other driver, so it must be linked with
// another name. It lacks two parameters that tests need. So init adds the option
// clientFoundRows, and a wrapper of the driver sets the time zone.
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
