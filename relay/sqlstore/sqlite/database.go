package sqlite

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database returns what relays need of the database.
func Database() backend.Database {
	return backend.Database{
		Schema:   schema(),
		Dialects: []string{dialect.SQLite().Name()},
		New: func(db *sql.DB, d dialect.Dialect, table dialect.Table, _ backend.Reader) backend.Backend {
			return New(db, d, table)
		},
	}
}
