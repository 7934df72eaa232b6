package sqlite

import (
	"database/sql"
	"errors"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Database returns the [backend.Database] of SQLite.
func Database() backend.Database {
	return backend.Database{
		Schema: schema(),
		URLs:   []backend.URL{{Dialect: dialect.SQLite().Name(), Example: "sqlite:path/to/file.db", File: pathOf}},
		New: func(db *sql.DB, d dialect.Dialect, table dialect.Table, _ backend.Reader) backend.Backend {
			return New(db, d, table)
		},
	}
}

// pathOf returns the file's path. The argument is the part of a URL after the scheme: a path, or // and an absolute path. It
// must have no parameters, and pathOf decodes no escapes.
func pathOf(path string) (string, error) {
	if after, slashes := strings.CutPrefix(path, "//"); slashes {
		if !strings.HasPrefix(after, "/") {
			return "", errors.New("names a host: write sqlite:path/to/file.db or sqlite:///absolute/path.db")
		}
		path = after
	}
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return "", errors.New("names no file: write sqlite:path/to/file.db")
	case strings.HasPrefix(path, ":memory:"):
		return "", errors.New("is in memory, where no other process can write: name a file, as in sqlite:path/to/file.db")
	case strings.ContainsAny(path, "?\x00"):
		return "", errors.New("has parameters: write sqlite: and only the file's path")
	}
	return path, nil
}
