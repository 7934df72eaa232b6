// Package dialect holds every SQL statement of the project, one group of files
// a database. It imports no driver: a dialect turns typed arguments into a
// [Query], and whoever holds a connection runs it.
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

// Steps are a change that answers with rows. They are one transaction, unless
// there is nothing but Ask, which is then the whole change by itself.
type Steps struct {
	Do  []Query // come first
	Ask Query   // its rows are the answer

	// After, if it isn't nil, makes what comes last, of the first column of the
	// answer's rows: the rows to change, where one statement can't both select
	// and change them.
	After func(first []int64) []Query

	// Also, if it has a text, comes after that: its rows are answers, too, and
	// may be the same ones.
	Also Query
}

// alone is a change by a single statement.
func alone(query Query) Steps { return Steps{Ask: query} }

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
