package mysql

import (
	"database/sql"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database returns the [backend.Database] of MySQL and MariaDB.
func Database() backend.Database {
	return backend.Database{
		Schema: schema(),
		URLs: []backend.URL{
			{Dialect: dialect.MySQL().Name(), Example: "mysql://user:password@host:3306/name", Name: backend.PathName},
			{Dialect: dialect.MariaDB().Name(), Example: "mariadb://user:password@host:3306/name", Name: backend.PathName},
		},
		New: func(db *sql.DB, d dialect.Dialect, table dialect.Table, _ backend.Reader) backend.Backend {
			return New(db, d, table)
		},
	}
}
