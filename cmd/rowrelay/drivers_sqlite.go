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

// sqliteAnswers are what a connection answers when it is asked for a pragma, where that is not the value that it was given.
var sqliteAnswers = map[string]string{"journal_mode": "wal", "synchronous": "2"}

// fileURL is the URL of a database in a file, which needs no server.
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
	// A path is taken as it is, so what a URI gives a meaning to is escaped.
	escaped := strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
	return "file:" + escaped + "?" + parameters.Encode()
}

// checkPragmas asks for each pragma, as the driver passes over parameters that it doesn't know.
func checkPragmas(ctx context.Context, db *sql.DB) error {
	for _, pragma := range dialect.Settings(dialect.SQLite()) {
		var got string
		if err := db.QueryRowContext(ctx, "PRAGMA "+pragma.Name).Scan(&got); err != nil {
			return err
		}
		if got != cmp.Or(sqliteAnswers[pragma.Name], pragma.Value) {
			return fmt.Errorf("the file can't be used with %s=%s, it has %s; is it on a network's file system?", pragma.Name, pragma.Value, got)
		}
	}
	return nil
}
