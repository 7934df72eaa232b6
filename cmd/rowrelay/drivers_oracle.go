//go:build oracle

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"

	oracle "github.com/sijms/go-ora/v2"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// optionalDrivers returns the drivers that need a build tag.
func optionalDrivers() []databaseDriver {
	return []databaseDriver{{dialect.Oracle(), openOracle, hintOracle}}
}

func openOracle(_ context.Context, database config.Database, _ pool) (*sql.DB, error) {
	made := oracle.NewDriver() // one driver for all connections, because it caches properties of the server
	connector, err := newRenewing(database, refusesOracle, func(database config.Database) (driver.Connector, error) {
		return made.OpenConnector(database.Secret())
	})
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}

// refusesOracle reports whether the server refuses the login.
func refusesOracle(err error) bool { return strings.Contains(err.Error(), "ORA-01017") }

func hintOracle(err error) string {
	switch {
	case strings.Contains(err.Error(), "ORA-01017"):
		return hintPassword
	case strings.Contains(err.Error(), "ORA-12514"):
		return hintDatabase
	}
	return ""
}
