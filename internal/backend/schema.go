package backend

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Schema describes how package migrations creates a database's tables.
type Schema struct {
	// Files has the steps of an outbox in the folder migrations/outbox, and the steps of an inbox in
	// migrations/inbox. Each step is a file in goose's format, and a template that is filled with a table's names.
	Files fs.FS

	// Quoted returns the table with its names quoted for the files' statements. If it is nil, the names are not quoted.
	Quoted func(dialect.Table) dialect.Table

	// Versions returns the statements that access the table of applied steps.
	Versions func(dialect.Table) Versions

	// Begin is the statement that begins a transaction. It is printed before each step that runs in a transaction. It is
	// empty if no step runs in a transaction.
	Begin string

	// MakeSchema returns the statement that creates a table's schema if the schema doesn't exist. It is called only if the
	// table's name contains a schema, and only for SQL that is printed. It returns "" for a schema that every database has.
	// It is nil if only administrators create schemas.
	MakeSchema func(dialect.Table) string

	// Scripts is set if the printed SQL is a script for the database's own client. Other migration tools can't run the
	// statements of such a script one by one.
	Scripts bool

	// Lock returns the lock that is held while steps are applied or rolled back, for databases whose steps don't run in
	// transactions. If Lock is nil, no lock is needed.
	Lock func(dialect.Table) SessionLock

	// Notify has the statements for the trigger that wakes listening relays on a plain INSERT. They are the templates
	// "function", "trigger", "drop" and "there". Notify is empty if the database has no notifications.
	Notify string

	// BusyHint is the advice for an operator if the database is busy while steps are applied. It may be empty.
	BusyHint string
}

// Versions are the statements, and parts of statements, with which a database accesses the table of applied steps.
type Versions struct {
	// Create creates the table.
	Create string

	// Exists selects whether the table exists. If it is empty, package migrations selects from the table, and a
	// table without rows counts as missing.
	Exists string

	Argument string // the placeholder of a statement's first argument, such as $1
	True     string // the literal for true in the column is_applied
}

// SessionLock is a lock that one connection holds.
type SessionLock interface {
	SessionLock(ctx context.Context, conn *sql.Conn) error
	SessionUnlock(ctx context.Context, conn *sql.Conn) error
}
