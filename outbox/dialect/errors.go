package dialect

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// Explain adds to an error of a database that it is of another kind than the
// dialect, where it is: its own error then is about one of our words. It asks the
// database, so it is for errors that come before any work.
func Explain(ctx context.Context, db *sql.DB, d Dialect, err error) error {
	if err == nil {
		return nil
	}
	server, fits := kindOf(ctx, db), d.Name()
	if server.name == "" || strings.Contains(server.dialects, " "+fits+" ") {
		return err
	}
	return fmt.Errorf("the database is %s and the dialect is that of %s: give %s: %w", server.name, fits, server.give, err)
}

// kind is a kind of database.
type kind struct {
	name, dialects, give string
}

// kindOf asks in the words of one kind after the other; its name is empty if none
// of them is understood.
func kindOf(ctx context.Context, db *sql.DB) kind {
	var version string
	ask := func(query string) bool { return db.QueryRowContext(ctx, query).Scan(&version) == nil }
	switch {
	case ask("SELECT sqlite_version()"):
		return kind{"SQLite", " sqlite ", "dialect.SQLite()"}
	case ask("SELECT version()") && strings.Contains(version, "MariaDB"):
		return kind{"MariaDB", " mysql mariadb ", "dialect.MariaDB()"}
	case version != "" && version[0] >= '0' && version[0] <= '9':
		return kind{"MySQL", " mysql mariadb tidb ", "dialect.MySQL()"}
	case version != "":
		return kind{"PostgreSQL or its like", " postgres ", "dialect.Postgres()"}
	case ask("SELECT @@VERSION"):
		return kind{"SQL Server", " sqlserver ", "dialect.SQLServer()"}
	case ask("SELECT banner FROM v$version WHERE ROWNUM = 1"):
		return kind{"Oracle", " oracle ", "dialect.Oracle()"}
	}
	return kind{}
}

// Misunderstood says that a database didn't understand a statement. Those of a
// dialect are understood by its own databases.
func Misunderstood(err error) bool {
	return says(err, "syntax error", "error in your SQL syntax", "unrecognized token", "Incorrect syntax near", "ORA-009", "missing named argument", "Unknown column '$")
}

// says looks for words in an error's text.
func says(err error, words ...string) bool {
	return err != nil && slices.ContainsFunc(words, func(word string) bool { return strings.Contains(err.Error(), word) })
}
