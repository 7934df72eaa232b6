package oracle

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database returns the [backend.Database] of Oracle.
func Database() backend.Database {
	return backend.Database{
		Schema: schema(),
		URLs:   []backend.URL{{Dialect: dialect.Oracle().Name(), Example: "oracle://user:password@host:1521/service", Name: backend.PathName}},
		New: func(db *sql.DB, d dialect.Dialect, table dialect.Table, _ backend.Reader) backend.Backend {
			return New(db, d, table)
		},
	}
}
