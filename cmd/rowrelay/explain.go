package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// explain adds to an error about a table what to do about it.
func explain(source config.Source, err error) error {
	if err == nil || errors.As(err, new(*explainedError)) {
		return err
	}
	var missing, denied bool
	var where string // the flags that name the table, without its password; none where there are several
	if d, unknown := dialect.ByName(source.Database.Kind()); unknown == nil {
		missing, denied = d.Missing(err), d.Denied(err)
		where = " --database " + shellQuote(source.Database.String())
		if source.Table != config.DefaultTable {
			where += " --table " + source.Table
		}
		if source.File != "" {
			where = " --config " + shellQuote(source.File) + " --source " + shellQuote(source.Name)
		}
	}
	wrong, isWrong := errors.AsType[*dialect.WrongKind](err)
	switch {
	case isWrong:
		return fmt.Errorf("the database is %s: use a URL that begins with %s://", wrong.Server, strings.ToLower(wrong.Right))
	case errors.Is(err, storage.ErrNewerSchema):
		return hinted(err, "use a newer rowrelay: rowrelay version tells this one's, and rowrelay status"+where+" by the one that works shows theirs")
	case errors.Is(err, storage.ErrNoSchema), missing:
		return hinted(err, "run rowrelay migrate up"+where)
	case errors.Is(err, storage.ErrOtherClaim):
		return hinted(err, "tell this relay the same with --claim (claim: in a configuration), or stop all relays of the table first: rowrelay status"+where+" lists them")
	case refusal(err) == "42P05" || refusal(err) == "26000": // a prepared statement that is there already, or isn't
		return hinted(err, "a pooler in transaction mode stands in between, and doesn't follow prepared statements: add default_query_exec_mode=exec to the URL, or set PgBouncer's max_prepared_statements (1.21 and later)")
	case denied:
		return hinted(err, "grant the database's user what it lacks, or name another one: the page of the database in outbox/dialect says what relays, operators and producers need, and rowrelay check"+where+" what a relay's user lacks")
	}
	return err
}

// explainedError is an error with what to do about it.
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

// shellQuote makes a word that a shell takes as it is.
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
	hintPassword = "the server refuses the password: check the user and password of the URL"
	hintDatabase = "there is no such database: create it, or check its name in the URL"
	hintReach    = "check the host and port of the URL, and that the server runs and can be reached"
)

// connectHints say what to do about a server's refusal to connect, by what
// refusal makes of it.
var connectHints = map[string]string{
	"28P01": hintPassword,
	"28000": "the server refuses the user: check the user of the URL, and the server's pg_hba.conf",
	"3D000": hintDatabase,
	"53300": "the server has no connection left: raise its max_connections, or close some",
	"57P03": "the server is starting or stopping: try again in a moment",

	"mysql 1045": hintPassword,
	"mysql 1044": "the user has no right to this database: grant it, or check the database's name in the URL",
	"mysql 1049": hintDatabase,
	"mysql 1040": "the server has no connection left: raise its max_connections, or close some",
	"mysql 1130": "the server refuses users from this host: create the user for it",
	"mysql 1226": "the user has no connection left: raise its MAX_USER_CONNECTIONS, or close some",

	"mssql 18456": hintPassword,
	"mssql 4060":  hintDatabase,

	"ORA-01017": hintPassword,
	"ORA-12514": hintDatabase,
}

// refusal finds a server's own code in an error, whichever driver it comes from.
func refusal(err error) string {
	var coded interface{ SQLState() string }
	var numbered interface{ SQLErrorNumber() int32 }
	var mysqlError *mysql.MySQLError
	switch {
	case errors.As(err, &coded):
		return coded.SQLState()
	case errors.As(err, &mysqlError):
		return fmt.Sprint("mysql ", mysqlError.Number)
	case errors.As(err, &numbered):
		return fmt.Sprint("mssql ", numbered.SQLErrorNumber())
	}
	if _, text, found := strings.Cut(err.Error(), "ORA-"); found && len(text) >= 5 {
		return "ORA-" + text[:5]
	}
	return ""
}

// connectError is an error about a database that can't be opened, with what to
// do about it and without the password.
func connectError(database config.Database, err error) error {
	hint := connectHints[refusal(err)]
	switch {
	case errors.Is(err, fs.ErrNotExist) && database.IsFile():
		hint = "create it with rowrelay migrate up --database " + shellQuote(database.String())
	case hint == "" && !database.IsFile() && !errors.Is(err, errURL):
		hint = hintReach
	}
	return hinted(fmt.Errorf("open %s: %w", database, err), hint)
}
