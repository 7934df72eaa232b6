package postgres

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database returns the [backend.Database] of PostgreSQL. If a URL names no database, the driver uses the name in the
// environment or the user's name.
func Database() backend.Database {
	return backend.Database{
		Schema: schema(),
		URLs:   []backend.URL{{Dialect: dialect.Postgres().Name(), Alias: "postgresql", Example: "postgres://user:password@host:5432/name"}},
		New: func(db *sql.DB, d dialect.Dialect, table dialect.Table, reader backend.Reader) backend.Backend {
			return New(db, d, table, reader)
		},
	}
}
