// Package databases lists the databases that rowrelay supports.
package databases

import (
	"slices"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/mysql"
	"github.com/rowrelay/rowrelay/relay/sqlstore/oracle"
	"github.com/rowrelay/rowrelay/relay/sqlstore/postgres"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlite"
	"github.com/rowrelay/rowrelay/relay/sqlstore/sqlserver"
)

// All returns the databases.
func All() []backend.Database {
	return []backend.Database{postgres.Database(), mysql.Database(), sqlite.Database(), sqlserver.Database(), oracle.Database()}
}

// Of returns the database of a dialect, if there is one: a program may have a dialect of its own.
func Of(d dialect.Dialect) (database backend.Database, found bool) {
	for _, database := range All() {
		if slices.Contains(database.Dialects, d.Name()) {
			return database, true
		}
	}
	return backend.Database{}, false
}
