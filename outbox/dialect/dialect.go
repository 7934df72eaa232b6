// Package dialect has what producers and consumers need to know of a database, and what
// all must agree on: how a message is written, the inbox, the tables' names, what an error
// means, and which server it is. It imports no driver: a dialect turns typed arguments into
// a [Query], and whoever holds a connection runs it. What a relay asks stands in
// relay/sqlstore, a folder a database.
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

	Writing
	Schema
	Errors
	Inboxes
}

// ByName returns the dialect with that name: postgres, mysql, mariadb, tidb, oracle, sqlserver or sqlite.
func ByName(name string) (Dialect, error) {
	for _, known := range []Dialect{Postgres(), MySQL(), MariaDB(), TiDB(), Oracle(), SQLServer(), SQLite()} {
		if known.Name() == name {
			return known, nil
		}
	}
	return nil, fmt.Errorf("database dialect %q is not known: it must be postgres, mysql, mariadb, tidb, oracle, sqlserver or sqlite", name)
}

// Query is one statement and its arguments, ready for any database/sql driver
// of the dialect's database.
type Query struct {
	SQL  string
	Args []any
}

// Row is a message as it is written: validated, with its id.
type Row struct {
	MessageID   string // a UUID
	Topic       string
	Key         string    // empty: NULL
	Payload     []byte    // nil: NULL
	Headers     string    // a JSON object; empty: NULL
	AvailableAt time.Time // zero: NULL, at once
	Priority    int16
}

// Writing is what a producer needs of a dialect.
type Writing interface {
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
}

// WrittenTime is the form of times, in UTC, in what Written selects. Fractions
// of a second follow it.
const WrittenTime = "2006-01-02 15:04:05"

// Schema is about the tables themselves.
type Schema interface {
	// SchemaVersion selects the version of the tables, as text.
	SchemaVersion(table Table) Query

	// MakeRowIndexes makes the indexes that claiming by rows needs, where they
	// are missing, one statement each. DropRowIndexes drops them.
	MakeRowIndexes(table Table) []Query
	DropRowIndexes(table Table) []Query

	// RowIndexes selects how many of these indexes there are, of RowIndexCount.
	RowIndexes(table Table) Query
}

// RowIndexCount is the number of indexes that claiming by rows needs.
const RowIndexCount = 3

// Errors tells what a driver's error means, without knowing the driver.
type Errors interface {
	// Busy: the database refused for the moment and changed nothing.
	Busy(err error) bool

	// Missing: a table or a schema isn't there.
	Missing(err error) bool

	// Denied: the user lacks a right.
	Denied(err error) bool
}
