// Package dialect has what producers and consumers need to know of a database, and what
// all must agree on: how a message is written, the inbox, the tables' names, what an error
// means, and which server it is. It imports no driver: a dialect turns typed arguments into
// a [Query], and whoever holds a connection runs it. What a relay asks stands in
// relay/sqlstore, a folder a database.
//
// Each database has a file of its own, in this order: writing, the inbox, the tables, errors,
// and which server it is.
package dialect

import (
	"fmt"
	"time"
)

// Dialect is what the project knows of one database. Its methods may be called
// concurrently; they only make statements.
type Dialect interface {
	// Name is the dialect's own, as ByName takes it.
	Name() string

	// Insert returns the statement that inserts the rows, with ids in the rows'
	// order; as few statements as the database's limits allow, normally one.
	Insert(table Table, rows []Row) []Query

	// LockKeys returns statements that hold other writers of these keys back
	// until the transaction ends, in an order that can't deadlock. Empty where
	// the database has one writer at a time.
	LockKeys(table Table, keys []string) []Query

	// Notify returns the statement that wakes listening relays when the
	// transaction commits. Empty where the database has no such thing.
	Notify(table Table) []Query

	// Written selects all messages in the order of their ids, for tests: id,
	// topic, key, payload, whether payload is NULL, payload_text, headers,
	// available_at as WrittenTime has it, and priority. All but the first two,
	// the flag and the last can be NULL.
	Written(table Table) Query

	// Receive inserts a message's id into an inbox for this consumer, to recognise a
	// message that comes again. It affects one row. Where the id is there already it
	// affects none, or fails with an error that Received knows. It waits for a
	// transaction that has inserted the same and is still open.
	Receive(table Table, consumer, messageID string) Query

	// Received says that Receive failed because the id is there. The transaction
	// can go on.
	Received(err error) bool

	// PurgeReceived deletes up to limit of this consumer's ids that were received
	// longer ago.
	PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query

	// InboxVersion selects the version of an inbox, as text.
	InboxVersion(table Table) Query

	// SchemaVersion selects the version of an outbox's tables, as text.
	SchemaVersion(table Table) Query

	// MakeRowIndexes makes the indexes that claiming by rows needs, where they
	// are missing, one statement each. DropRowIndexes drops them.
	MakeRowIndexes(table Table) []Query
	DropRowIndexes(table Table) []Query

	// RowIndexes selects how many of these indexes there are, of RowIndexCount.
	RowIndexes(table Table) Query

	// What a driver's error means, which is told without knowing the driver.

	// Busy: the database refused for the moment and changed nothing.
	Busy(err error) bool

	// Missing: a table or a schema isn't there.
	Missing(err error) bool

	// Denied: the user lacks a right.
	Denied(err error) bool
}

// ByName returns the dialect with that name: postgres, mysql, mariadb, tidb, oracle, sqlserver or sqlite.
func ByName(name string) (Dialect, error) {
	switch name {
	case "postgres":
		return Postgres(), nil
	case "mysql":
		return MySQL(), nil
	case "mariadb":
		return MariaDB(), nil
	case "tidb":
		return TiDB(), nil
	case "oracle":
		return Oracle(), nil
	case "sqlserver":
		return SQLServer(), nil
	case "sqlite":
		return SQLite(), nil
	}
	return nil, fmt.Errorf("database dialect %q is not known: it must be postgres, mysql, mariadb, tidb, oracle, sqlserver or sqlite", name)
}

// Query is one statement and its arguments, ready for any database/sql driver
// of the dialect's database.
type Query struct {
	SQL  string
	Args []any
}

// RowIndexCount is the number of indexes that claiming by rows needs.
const RowIndexCount = 3

// WrittenTime is the form of times, in UTC, in what Written selects. Fractions
// of a second follow it.
const WrittenTime = "2006-01-02 15:04:05"

// inboxVersion is 1 where there is a table: there is no other version.
func inboxVersion(table Table) Query {
	return Query{SQL: "SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM " + table.Inbox + " WHERE consumer IS NULL"}
}

// Fitting is implemented by a dialect whose servers differ in what they can do.
// Whoever opens a table asks the server, and goes on with the variant that fits.
type Fitting interface {
	// Server selects what there is to know of the server: lines of a name, in
	// lower case, and a value. It needs no table and no right. The trial, which is made on
	// the table, shows whether a select passes over rows that another transaction has
	// locked, without waiting. Nil: there is no need to try.
	Server(table Table) (facts Query, trial *Trial)

	// Fit returns the variant for a server that has answered so. It fails if
	// there is none; the error names the server's version, and what is needed.
	Fit(server Server) (Fit, error)
}

// Trial is made with two transactions: Hold runs in the one, and while that is
// open Pass runs in the other. Neither changes anything. Both select one column.
type Trial struct {
	// Begin comes first in both transactions: it bounds their wait for a lock to about a
	// second, so that a server which waits says so, and a slow one doesn't seem to. End
	// comes last, where the bound is the session's.
	Begin, End []Query

	Hold Query  // locks one row
	Pass Query  // selects that row, and another one, but those that are locked
	Want string // what Pass then selects, as text: the other row alone
}

// Server is what a server has answered.
type Server struct {
	Facts map[string]string // by name, as [Fitting.Server] selects them
	Skips bool              // the trial went well; true if there was none
}

// Fit is a dialect that fits a server.
type Fit struct {
	Dialect Dialect

	// Unordered says that ids aren't given out in one order for all who write,
	// as several servers do so at a time: rows may appear below others as long
	// as the longest transaction lasts, and no observation tells when.
	Unordered bool

	// Notes are what an operator should know: for a check, and for the log.
	Notes []Note
}

// Note is one thing to know about a server.
type Note struct {
	Name   string // of one or two words
	OK     bool
	Detail string // what was found
	Hint   string // what to do, if it isn't OK
}

// RowsOnly is implemented by a dialect whose tables can't be claimed by lanes.
type RowsOnly interface {
	// NoLanes says why, as part of an error.
	NoLanes() string
}

// Repeating is implemented by a dialect of a database that commits each
// statement which makes or drops something: of a migration that failed, what came
// before stays, and it is run again from its beginning.
type Repeating interface {
	// Made says that a statement failed because what it makes is there already;
	// Gone, that it failed because what it drops isn't there.
	Made(err error) bool
	Gone(err error) bool
}
