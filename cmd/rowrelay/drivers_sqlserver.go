package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/rowrelay/rowrelay/internal/config"
)

// openSQLServer opens SQL Server and Azure SQL.
func openSQLServer(_ context.Context, database config.Database, _ pool) (*sql.DB, error) {
	settings, err := msdsn.Parse(database.Secret())
	if err == nil && settings.Encoding.GetTimezone() != time.UTC {
		err = errors.New("the parameter timezone has to be UTC: leave it out")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	if _, named := settings.Parameters[msdsn.AppName]; !named {
		settings.AppName = "rowrelay"
	}
	db := sql.OpenDB(mssql.NewConnectorConfig(settings))
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}
