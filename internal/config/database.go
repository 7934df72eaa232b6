package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/databases"
)

// Database is the URL of a database. It is printed and logged without its password. The zero value is no database.
type Database struct {
	kind string
	url  string // for a database in a file: the file's path
	file string // the file that the URL was read from; empty: none
}

// Current returns the database with the login in the URL that its file contains now. It returns d unchanged if that
// file can't be read, or names another database; see Moved. Only a restarted relay uses another database.
func (d Database) Current() Database {
	now, ok := d.reread()
	if !ok || now.withoutLogin() != d.withoutLogin() {
		return d
	}
	return now
}

// InFile reports whether the URL was read from a file.
func (d Database) InFile() bool { return d.file != "" }

// Moved reports whether the URL's file now names another database or server, or has other parameters.
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
	if err != nil || d.IsFile() {
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

// Kind returns the name of the database's dialect, or "" for the zero Database.
func (d Database) Kind() string { return d.kind }

// IsFile reports whether the database is a file, and has no server.
func (d Database) IsFile() bool {
	_, form, _ := databases.Of(d.kind)
	return form.File != nil
}

// Polled reports whether relays must poll this database, because it has no
// notifications.
func (d Database) Polled() bool {
	product, _, _ := databases.Of(d.kind)
	return d.kind != "" && product.Schema.Notify == ""
}

// Secret returns what the driver opens: the URL with its password, or the path of a file. Never log it.
func (d Database) Secret() string { return d.url }

// String returns the URL with its passwords replaced by xxxxx.
func (d Database) String() string {
	switch {
	case d.kind == "":
		return ""
	case d.IsFile():
		return d.kind + ":" + d.url
	}
	return redact(d.kind, d.url)
}

// GoString implements [fmt.GoStringer], so that %#v shows no password.
func (d Database) GoString() string { return fmt.Sprintf("config.Database(%q)", d.String()) }

// LogValue implements [slog.LogValuer]. The value has no password.
func (d Database) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalText implements [encoding.TextMarshaler], so that no encoder shows a password.
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

// ParseDatabase reads a database's URL in the form of its [backend.URL]. The driver interprets the URL's parameters. If
// the database is a file, its path has neither escapes nor parameters. The error never repeats the URL, because the URL
// may have a password.
func ParseDatabase(text string) (Database, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	form, known := formOf(scheme)
	switch {
	case !known:
		return Database{}, errNoURL(text)
	case form.File == nil:
		return parseURL(form, text)
	}
	path, err := form.File(rest)
	if err != nil {
		return Database{}, err
	}
	return Database{kind: form.Dialect, url: path}, nil
}

func formOf(scheme string) (form backend.URL, known bool) {
	for _, form := range databases.URLs() {
		if scheme != "" && (scheme == form.Dialect || scheme == form.Alias) {
			return form, true
		}
	}
	return backend.URL{}, false
}

// errNoURL returns the error of a text whose scheme isn't known. Other libraries' URLs of a known database, such as
// postgresql+psycopg://, jdbc:mysql:// and sqlite3:, get the example of that database.
func errNoURL(text string) error {
	scheme, _, found := strings.Cut(strings.TrimPrefix(strings.ToLower(text), "jdbc:"), ":")
	for _, form := range databases.URLs() {
		if found && strings.HasPrefix(scheme, form.Dialect) {
			return fmt.Errorf("isn't a database's URL: write %s, in lower case and without the name of a driver", form.Example)
		}
	}
	return fmt.Errorf("isn't a database's URL: write one that begins with %[2]s, such as %[1]s", databases.URLs()[0].Example, databases.Schemes())
}

// ParseKind reads a URL like ParseDatabase, but permits one that ends after its
// scheme, such as mysql:// or sqlite:, for commands that don't open the database.
func ParseKind(text string) (Database, error) {
	for _, form := range databases.URLs() {
		if text == form.Dialect+":" || text == form.Dialect+"://" {
			return Database{kind: form.Dialect, url: text}, nil
		}
	}
	return ParseDatabase(text)
}

func parseURL(form backend.URL, text string) (Database, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return Database{}, errors.New("isn't a valid URL: write " + form.Example +
			", with the special characters of a password percent-encoded")
	}
	if parsed.Opaque != "" || parsed.Fragment != "" || !strings.Contains(text, "://") {
		return Database{}, errors.New("isn't a valid URL: write " + form.Example +
			", with # and other special characters percent-encoded")
	}
	if form.Name != nil && form.Name(parsed) == "" {
		return Database{}, errors.New("names no database: write " + form.Example)
	}
	return Database{kind: form.Dialect, url: text}, nil
}
