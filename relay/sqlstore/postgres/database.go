package postgres

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database returns what relays need of the database. A URL need not name a database: the driver then takes the user's
// name, or the environment's.
func Database() backend.Database {
	return backend.Database{
		Schema: schema(),
		URLs:   []backend.URL{{Dialect: dialect.Postgres().Name(), Alias: "postgresql", Example: "postgres://user:password@host:5432/name"}},
		New: func(db *sql.DB, d dialect.Dialect, table dialect.Table, reader backend.Reader) backend.Backend {
			return New(db, d, table, reader)
		},
	}
}
