package backend

import (
	"database/sql"
	"net/url"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database is a product, such as PostgreSQL, with what relays need of it. Each folder of
// relay/sqlstore has one.
type Database struct {
	// URLs are the forms of the URLs that name one of its databases: one for each dialect.
	URLs []URL

	// New returns the backend of a table. It asks the database nothing. The reader may be nil.
	New func(db *sql.DB, d dialect.Dialect, table dialect.Table, reader Reader) Backend

	// Schema makes its tables.
	Schema Schema
}

// URL is the form of the URLs of a dialect.
type URL struct {
	Dialect string // its name, which is the scheme, too
	Alias   string // another scheme that means the same; empty: none
	Example string

	// Name returns the name of the database that a URL has, if any. It is nil where a URL needs none.
	Name func(*url.URL) string

	// File is set where a database is a file. What follows the scheme is the file's path then, and no URL: File
	// returns the path as the system takes it, or an error that doesn't repeat it.
	File func(path string) (string, error)
}

// PathName is the name where the path of a URL is the name.
func PathName(url *url.URL) string { return strings.TrimPrefix(url.Path, "/") }
