//go:build oracle

package main

import (
	"context"
	"database/sql"

	_ "github.com/sijms/go-ora/v2"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func withOracle(all map[string]databaseDriver) map[string]databaseDriver {
	all[config.Oracle] = databaseDriver{dialect.Oracle, openOracle}
	return all
}

func openOracle(_ context.Context, database config.Database, _ pool) (*sql.DB, error) {
	db, err := sql.Open("oracle", database.Secret())
	if err != nil {
		return nil, errURL // the driver's own error may repeat the URL
	}
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}
