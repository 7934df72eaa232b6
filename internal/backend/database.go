package backend

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database is a product, such as PostgreSQL, with what relays need of it. Each folder of
// relay/sqlstore has one.
type Database struct {
	// Dialects are the names of its dialects.
	Dialects []string

	// New returns the backend of a table. It asks the database nothing. The reader may be nil.
	New func(db *sql.DB, d dialect.Dialect, table dialect.Table, reader Reader) Backend

	// Schema makes its tables.
	Schema Schema
}
