//go:build oracle

package main

import (
	"context"
	"database/sql"
	"database/sql/driver"

	oracle "github.com/sijms/go-ora/v2"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func withOracle(others []databaseDriver) []databaseDriver {
	return append(others, databaseDriver{dialect.Oracle(), openOracle})
}

func openOracle(_ context.Context, database config.Database, _ pool) (*sql.DB, error) {
	made := oracle.NewDriver() // it keeps what connections have learned of the server
	connector, err := newRenewing(database, func(database config.Database) (driver.Connector, error) {
		return made.OpenConnector(database.Secret())
	})
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}
