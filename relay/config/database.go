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
	Postgres = "postgres"
	SQLite   = "sqlite"
)

// Database is the URL of a database. It prints and logs without its password.
// The zero value is no database.
type Database struct {
	kind string
	url  string // a PostgreSQL URL, or the path of an SQLite file
}

// ParseDatabase reads a database's URL: postgres://… or postgresql://…, or
// sqlite:path/to/file.db (also sqlite:///absolute/path). An SQLite path is
// taken as it is written, without escapes or parameters. The error never
// repeats the URL, which may hold a password.
func ParseDatabase(text string) (Database, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "postgres", "postgresql":
		return parsePostgres(text)
	case "sqlite":
		return parseSQLite(rest)
	}
	return Database{}, errors.New("isn't a database's URL: write postgres://user@host/name or sqlite:path/to/file.db")
}

func parsePostgres(text string) (Database, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return Database{}, errors.New("isn't a valid URL: write postgres://user:password@host:5432/name," +
			" with the special characters of a password percent-encoded")
	}
	if parsed.Opaque != "" || parsed.Fragment != "" || !strings.Contains(text, "://") {
		return Database{}, errors.New("isn't a PostgreSQL URL: write postgres://user:password@host:5432/name," +
			" with # and other special characters percent-encoded")
	}
	return Database{Postgres, text}, nil
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
	return Database{SQLite, path}, nil
}

// Kind returns [Postgres] or [SQLite], or nothing for the zero Database.
func (d Database) Kind() string { return d.kind }

// Secret returns what the driver needs, password included: the URL for
// PostgreSQL, the file's path for SQLite. Never log it.
func (d Database) Secret() string { return d.url }

// String returns the URL with its passwords replaced by xxxxx.
func (d Database) String() string {
	switch d.kind {
	case SQLite:
		return "sqlite:" + d.url
	case Postgres:
		return redact(d.url)
	}
	return ""
}

// GoString is String, so that %#v shows no password either.
func (d Database) GoString() string { return fmt.Sprintf("config.Database(%q)", d.String()) }

// LogValue is String, for slog.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText is String, so that no encoder shows a password.
func (d Database) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func redact(text string) string {
	parsed, err := url.Parse(text)
	if err != nil {
		return "postgres://…"
	}
	query := parsed.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if query.Has(name) {
			query.Set(name, "xxxxx")
			parsed.RawQuery = query.Encode()
		}
	}
	return parsed.Redacted()
}
