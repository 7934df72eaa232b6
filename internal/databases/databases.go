// Package databases lists the databases that rowrelay supports.
package databases

import (
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
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

// Of returns the database that has a dialect with this name, and the form of the URLs for
// this dialect. found is false if no database has this dialect.
func Of(name string) (database backend.Database, form backend.URL, found bool) {
	for _, database := range All() {
		for _, form := range database.URLs {
			if form.Dialect == name {
				return database, form, true
			}
		}
	}
	return backend.Database{}, backend.URL{}, false
}

// Schemes returns the schemes of all URLs, joined for an error text or a help text.
func Schemes() string {
	var all []string
	for _, form := range URLs() {
		all = append(all, form.Dialect+":")
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// Notifying returns the names of the databases that have notifications, joined for an error text or a help text.
func Notifying() string {
	var all []string
	for _, database := range All() {
		if database.Schema.Notify != "" {
			all = append(all, database.URLs[0].Dialect)
		}
	}
	return strings.Join(all, " and ")
}

// URLs returns the forms of all URLs.
func URLs() (all []backend.URL) {
	for _, database := range All() {
		all = append(all, database.URLs...)
	}
	return all
}
