package backend

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Schema is how a database's tables are made. Package migrations makes them.
type Schema struct {
	// Files are the steps of an outbox in the folder migrations/outbox, and those of an inbox in
	// migrations/inbox. Each is a file as goose reads it, and a template that is filled with a table's names.
	Files fs.FS

	// Quoted returns the names as the files' statements need them. Nil: as they are.
	Quoted func(dialect.Table) dialect.Table

	// Versions are the statements on the table of applied steps.
	Versions func(dialect.Table) Versions

	// Begin begins the transaction of a step that is printed. It is empty where no step is a transaction.
	Begin string

	// Lock is held while steps are applied or taken back, where these aren't transactions. Nil: no lock.
	Lock func(dialect.Table) SessionLock

	// Notify has the statements of the trigger by which a plain INSERT wakes listening relays: a template for each of
	// function, trigger, drop and there. It is empty where the database has no notifications.
	Notify string

	// BusyHint is what an operator can do if the database is busy while steps are applied. It may be empty.
	BusyHint string
}

// Versions are a database's statements on the table of applied steps, and parts of them.
type Versions struct {
	// Create makes the table.
	Create string

	// Exists selects whether it exists. Empty: a SELECT from it says so, and a table without a row doesn't exist.
	Exists string

	Argument string // the first argument of a statement, such as $1
	True     string // what is_applied is set to
}

// SessionLock is a lock that a connection holds.
type SessionLock interface {
	SessionLock(ctx context.Context, conn *sql.Conn) error
	SessionUnlock(ctx context.Context, conn *sql.Conn) error
}
