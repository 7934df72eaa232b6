package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay/internal/config"
)

// sqlitePragmas are what every connection is told, and what it must answer
// when it is asked: the driver passes over parameters that it doesn't know.
var sqlitePragmas = []struct{ name, value, answer string }{
	{"journal_mode", "WAL", "wal"},
	{"busy_timeout", "10000", "10000"},
	{"synchronous", "FULL", "2"},
	{"foreign_keys", "1", "1"},
}

func openSQLite(ctx context.Context, database config.Database, as pool) (*sql.DB, error) {
	path := database.Secret()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !as.create {
		return nil, fs.ErrNotExist
	}
	db, err := sql.Open("sqlite", sqliteDSN(path, as.create))
	if err != nil {
		return nil, err
	}
	if err := checkPragmas(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func sqliteDSN(path string, create bool) string {
	mode := "rw"
	if create {
		mode = "rwc"
	}
	parameters := url.Values{"_txlock": {"immediate"}, "mode": {mode}}
	for _, pragma := range sqlitePragmas {
		parameters.Add("_pragma", pragma.name+"("+pragma.value+")")
	}
	// A path is taken as it is, so what a URI gives a meaning to is escaped.
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file:" + escaped + "?" + parameters.Encode()
}

func checkPragmas(ctx context.Context, db *sql.DB) error {
	for _, pragma := range sqlitePragmas {
		var got string
		if err := db.QueryRowContext(ctx, "PRAGMA "+pragma.name).Scan(&got); err != nil {
			return err
		}
		if got != pragma.answer {
			return fmt.Errorf("the file can't be used with %s=%s, it has %s; is it on a network's file system?", pragma.name, pragma.value, got)
		}
	}
	return nil
}
