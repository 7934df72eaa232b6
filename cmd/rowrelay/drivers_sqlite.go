package main

import (
	"cmp"
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
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// sqliteAnswers has the values that SQLite reports for pragmas if these differ from the values that were set, such as 2 for FULL.
var sqliteAnswers = map[string]string{"journal_mode": "wal", "synchronous": "2"}

// fileURL returns the URL of an SQLite file.
func fileURL(path string) string { return dialect.SQLite().Name() + ":" + path }

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
	for _, pragma := range dialect.Settings(dialect.SQLite()) {
		parameters.Add("_pragma", pragma.Name+"("+pragma.Value+")")
	}
	// Escape the characters of the path that are special in a URI.
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file:" + escaped + "?" + parameters.Encode()
}

// checkPragmas checks that each pragma was set, because the driver ignores parameters that it doesn't know.
func checkPragmas(ctx context.Context, db *sql.DB) error {
	for _, pragma := range dialect.Settings(dialect.SQLite()) {
		var got string
		if err := db.QueryRowContext(ctx, "PRAGMA "+pragma.Name).Scan(&got); err != nil {
			return err
		}
		if got != cmp.Or(sqliteAnswers[pragma.Name], pragma.Value) {
			return fmt.Errorf("the file can't be used with %s=%s, it has %s: is it on a network file system?", pragma.Name, pragma.Value, got)
		}
	}
	return nil
}
