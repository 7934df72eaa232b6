//go:build oracle

package main

import (
	"context"
	"database/sql"
	"time"

	_ "github.com/sijms/go-ora/v2"

	"github.com/rowrelay/rowrelay/internal/config"
)

// As for PostgreSQL.
const oracleConnections = postgresConnections

func withOracle(all map[string]opener) map[string]opener {
	all[config.Oracle] = openOracle
	return all
}

func openOracle(_ context.Context, database config.Database, _ bool) (*sql.DB, error) {
	db, err := sql.Open("oracle", database.Secret())
	if err != nil {
		return nil, errURL // the driver's own error may repeat the URL
	}
	db.SetMaxOpenConns(oracleConnections)
	db.SetMaxIdleConns(oracleConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, nil
}
