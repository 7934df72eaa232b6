package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/rowrelay/rowrelay/internal/config"
)

// openSQLServer opens SQL Server and Azure SQL.
func openSQLServer(_ context.Context, database config.Database, _ pool) (*sql.DB, error) {
	connector, err := newRenewing(database, refusesSQLServer, connectSQLServer)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}

func connectSQLServer(database config.Database) (driver.Connector, error) {
	settings, err := msdsn.Parse(database.Secret())
	if err == nil && settings.Encoding.GetTimezone() != time.UTC {
		err = errors.New("the parameter timezone must be UTC: leave it out")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	if _, named := settings.Parameters[msdsn.AppName]; !named {
		settings.AppName = "rowrelay"
	}
	return mssql.NewConnectorConfig(settings), nil
}

// refusesSQLServer reports whether the server refuses the login.
func refusesSQLServer(err error) bool {
	var numbered interface{ SQLErrorNumber() int32 }
	return errors.As(err, &numbered) && numbered.SQLErrorNumber() == 18456
}

func hintSQLServer(err error) string {
	var numbered interface{ SQLErrorNumber() int32 }
	if !errors.As(err, &numbered) {
		return ""
	}
	return map[int32]string{18456: hintPassword, 4060: hintDatabase}[numbered.SQLErrorNumber()]
}
