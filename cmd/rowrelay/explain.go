package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// explain adds a hint to an error about a table. The hint describes what the user can do.
func explain(source config.Source, err error) error {
	if err == nil || errors.As(err, new(*explainedError)) {
		return err
	}
	var missing, denied bool
	// where has the flags that select the table, and all has the flags that select the whole configuration, for the commands in
	// a hint. They contain no password, and are empty if the error is about several tables.
	var where, all string
	if d, unknown := dialect.ByName(source.Database.Kind()); unknown == nil {
		missing, denied = d.Missing(err), d.Denied(err)
		where = " --database " + shellQuote(source.Database.String())
		if source.Table != config.DefaultTable {
			where += " --table " + source.Table
		}
		all = where
		if source.File != "" {
			all = " --config " + shellQuote(source.File)
			where = all + " --source " + shellQuote(source.Name)
		}
	}
	wrong, isWrong := errors.AsType[*dialect.WrongKind](err)
	switch {
	case isWrong:
		return fmt.Errorf("the database is %s: use a URL that begins with %s://", wrong.Server, strings.ToLower(wrong.Right))
	case errors.As(err, new(*storage.ForeignTable)):
		return hinted(err, "give rowrelay's tables another name with --table (table: in a configuration); rowrelay adopt can forward the rows of this table to them")
	case errors.Is(err, storage.ErrNewerSchema):
		return hinted(err, "use a version of rowrelay that is at least as new as the table's relays; its command rowrelay status"+where+" prints their versions")
	case errors.Is(err, storage.ErrNoSchema), missing:
		return hinted(err, "run rowrelay migrate up"+where)
	case errors.Is(err, storage.ErrOtherClaim):
		return hinted(err, "set the table's claim mode with --claim (claim: in a configuration), or first stop all relays of the table: rowrelay status"+where+" lists them")
	case denied:
		return hinted(err, hintRights+"; rowrelay check"+all+" prints the statements for a relay's user")
	}
	return hinted(err, refusalHint(source.Database, err))
}

// explainedError is an error with a hint for the user, which is printed on a separate line.
type explainedError struct {
	error
	hint string
}

func hinted(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &explainedError{err, hint}
}

func (e *explainedError) Error() string { return e.error.Error() + "\n  " + e.hint }
func (e *explainedError) Unwrap() error { return e.error }

// shellQuote quotes a word for a shell, if it needs quotes.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

const (
	hintRights   = "grant the missing rights to the database's user, or use another user: the database's page in outbox/dialect lists the rights that relays, operators and producers need"
	hintPassword = "the server refuses the password: check the user and password of the URL"
	hintDatabase = "the database doesn't exist: create it, or check its name in the URL"
	hintFull     = "the server has no free connection: raise its max_connections, or close some connections"
	hintReach    = "check the host and port of the URL, and that the server is running and reachable"
)

// refusalHint returns a hint for an error code of the database server, or "" if none is known.
func refusalHint(database config.Database, err error) string {
	driver, found := driverOf(database.Kind())
	if !found || driver.hint == nil {
		return ""
	}
	hint := driver.hint(err)
	if hint == hintPassword && database.Renewable() {
		return "the server refuses the password: check the user of the URL, and the secret of " + database.Settings()
	}
	return hint
}

// connectError returns the error for a database that can't be opened, with a
// hint and without the password.
func connectError(database config.Database, err error) error {
	hint := refusalHint(database, err)
	switch {
	case errors.Is(err, fs.ErrNotExist) && database.IsFile():
		hint = "create it with rowrelay migrate up --database " + shellQuote(database.String())
	case hint == "" && !database.IsFile() && !errors.Is(err, errURL):
		hint = hintReach
	}
	return hinted(fmt.Errorf("open %s: %w", database, err), hint)
}
