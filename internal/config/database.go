package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// The kinds of databases.
const (
	Postgres  = "postgres"
	MySQL     = "mysql"
	MariaDB   = "mariadb"
	SQLServer = "sqlserver"
	Oracle    = "oracle"
	SQLite    = "sqlite"
)

// Database is the URL of a database. It prints and logs without its password.
// The zero value is no database.
type Database struct {
	kind string
	url  string // or the path of an SQLite file
	file string // that the URL was read from; empty: none
}

// Current is the database with the login that its file has now. It is the same as before where the file can't be
// read, and where it names another database: all that a relay knows is of this one. Moved says so.
func (d Database) Current() Database {
	now, ok := d.reread()
	if !ok || now.withoutLogin() != d.withoutLogin() {
		return d
	}
	return now
}

// InFile says that the URL was read from a file.
func (d Database) InFile() bool { return d.file != "" }

// Moved says that the file names another database, server or parameter now.
func (d Database) Moved() bool {
	now, ok := d.reread()
	return ok && now.withoutLogin() != d.withoutLogin()
}

func (d Database) reread() (now Database, ok bool) {
	if d.file == "" {
		return d, false
	}
	text, err := readSecret(d.file)
	if err == nil {
		now, err = ParseDatabase(text)
	}
	now.file = d.file
	return now, err == nil
}

func (d Database) withoutLogin() string {
	parsed, err := url.Parse(d.url)
	if err != nil || d.kind == SQLite {
		return d.kind + d.url
	}
	query := parsed.Query()
	for name := range query {
		if lower := strings.ToLower(name); strings.Contains(lower, "pass") || strings.HasPrefix(lower, "user") {
			query.Del(name)
		}
	}
	parsed.User, parsed.RawQuery = nil, query.Encode()
	return parsed.String()
}

// Kind returns [Postgres], [MySQL] and so on, or nothing for the zero Database.
func (d Database) Kind() string { return d.kind }

// Polled reports whether relays must poll this database, since it has no
// notifications.
func (d Database) Polled() bool { return d.kind != "" && d.kind != Postgres }

// Secret returns what the driver needs, password included: the URL, or the
// file's path for SQLite. Never log it.
func (d Database) Secret() string { return d.url }

// String returns the URL with its passwords replaced by xxxxx.
func (d Database) String() string {
	switch d.kind {
	case "":
		return ""
	case SQLite:
		return "sqlite:" + d.url
	}
	return redact(d.kind, d.url)
}

// GoString is String, so that %#v shows no password either.
func (d Database) GoString() string { return fmt.Sprintf("config.Database(%q)", d.String()) }

// LogValue is String, for slog.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText is String, so that no encoder shows a password.
func (d Database) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func redact(kind, text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return kind + "://…"
	}
	query, secret := parsed.Query(), false
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, "xxxxx")
			secret = true
		}
	}
	if secret {
		parsed.RawQuery = query.Encode()
	}
	return parsed.Redacted()
}

// ParseDatabase reads a database's URL:
//
//	postgres://user:password@host:5432/name (or postgresql://…)
//	mysql://user:password@host:3306/name
//	mariadb://user:password@host:3306/name
//	sqlserver://user:password@host:1433?database=name
//	oracle://user:password@host:1521/service
//	sqlite:path/to/file.db (or sqlite:///absolute/path)
//
// with parameters, whose meaning is the driver's. An SQLite path is taken as it
// is written, without escapes or parameters. The error never repeats the URL,
// which may hold a password.
func ParseDatabase(text string) (Database, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "postgresql":
		return parseURL(Postgres, text)
	case Postgres, MySQL, MariaDB, SQLServer, Oracle:
		return parseURL(scheme, text)
	case SQLite:
		return parseSQLite(rest)
	}
	return Database{}, errors.New("isn't a database's URL: write postgres://user@host/name, mysql://user@host/name," +
		" mariadb://…, sqlserver://…, oracle://… or sqlite:path/to/file.db")
}

// ParseKind reads a URL that may end after its scheme, as in sqlserver:// or sqlite:,
// for what asks no server and opens no file.
func ParseKind(text string) (Database, error) {
	for _, kind := range []string{Postgres, MySQL, MariaDB, SQLServer, Oracle, SQLite} {
		if text == kind+":" || text == kind+"://" {
			return Database{kind: kind, url: text}, nil
		}
	}
	return ParseDatabase(text)
}

// examples of URLs; where the name of the database is missing, they say where
// it belongs.
var examples = map[string]string{
	Postgres:  "postgres://user:password@host:5432/name",
	MySQL:     "mysql://user:password@host:3306/name",
	MariaDB:   "mariadb://user:password@host:3306/name",
	SQLServer: "sqlserver://user:password@host:1433?database=name",
	Oracle:    "oracle://user:password@host:1521/service",
}

func parseURL(kind, text string) (Database, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return Database{}, errors.New("isn't a valid URL: write " + examples[kind] +
			", with the special characters of a password percent-encoded")
	}
	if parsed.Opaque != "" || parsed.Fragment != "" || !strings.Contains(text, "://") {
		return Database{}, errors.New("isn't a valid URL: write " + examples[kind] +
			", with # and other special characters percent-encoded")
	}
	if kind != Postgres && nameIn(kind, parsed) == "" {
		return Database{}, errors.New("names no database: write " + examples[kind])
	}
	return Database{kind: kind, url: text}, nil
}

// nameIn returns the database that a URL names. PostgreSQL's may come from the
// user or the environment.
func nameIn(kind string, parsed *url.URL) string {
	if kind != SQLServer {
		return strings.TrimPrefix(parsed.Path, "/")
	}
	for name, values := range parsed.Query() {
		if strings.EqualFold(name, "database") {
			return values[0]
		}
	}
	return ""
}

func parseSQLite(path string) (Database, error) {
	if after, slashes := strings.CutPrefix(path, "//"); slashes {
		if !strings.HasPrefix(after, "/") {
			return Database{}, errors.New("names a host: write sqlite:path/to/file.db or sqlite:///absolute/path.db")
		}
		path = after
	}
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return Database{}, errors.New("names no file: write sqlite:path/to/file.db")
	case strings.HasPrefix(path, ":memory:"):
		return Database{}, errors.New("is in memory, where no other process can write: name a file, as in sqlite:path/to/file.db")
	case strings.ContainsAny(path, "?\x00"):
		return Database{}, errors.New("has parameters: an SQLite URL is sqlite: and the file's path, nothing more")
	}
	return Database{kind: SQLite, url: path}, nil
}
