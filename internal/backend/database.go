package backend

import (
	"database/sql"
	"net/url"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database describes a database product, such as PostgreSQL: its URLs, its backend and its schema.
// Each database's folder in relay/sqlstore has a Database.
type Database struct {
	// URLs are the forms of the product's database URLs, one for each dialect.
	URLs []URL

	// New returns the backend of a table, without running a statement. The reader may be nil.
	New func(db *sql.DB, d dialect.Dialect, table dialect.Table, reader Reader) Backend

	// Schema describes how package migrations creates the tables.
	Schema Schema
}

// URL is the form of the URLs of a dialect.
type URL struct {
	Dialect string // the dialect's name, which is also the scheme
	Alias   string // another scheme with the same meaning; empty: none
	Example string

	// Name returns the database name that a URL contains, or an empty string. Name is nil if a URL need not name a database.
	Name func(*url.URL) string

	// File is set if a database is a file. The text after the scheme is then the file's path, and isn't parsed as a URL.
	// File returns the path in the form that the operating system accepts, or an error that doesn't contain the path.
	File func(path string) (string, error)
}

// PathName returns the path of a URL, for databases whose URL has the database's name as its path.
func PathName(url *url.URL) string { return strings.TrimPrefix(url.Path, "/") }
