package config

import (
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
