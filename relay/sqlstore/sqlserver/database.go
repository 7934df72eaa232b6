package sqlserver

import (
	"database/sql"
	"net/url"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database returns the [backend.Database] of SQL Server.
func Database() backend.Database {
	return backend.Database{
		Schema: schema(),
		URLs:   []backend.URL{{Dialect: dialect.SQLServer().Name(), Example: "sqlserver://user:password@host:1433?database=name", Name: nameIn}},
		New: func(db *sql.DB, d dialect.Dialect, table dialect.Table, _ backend.Reader) backend.Backend {
			return New(db, d, table)
		},
	}
}

// nameIn returns the database name that a URL contains, or "".
func nameIn(url *url.URL) string {
	for name, values := range url.Query() {
		if strings.EqualFold(name, "database") {
			return values[0]
		}
	}
	return ""
}
