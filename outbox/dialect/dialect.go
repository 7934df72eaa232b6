// Package dialect holds every SQL statement of the project, one file a
// database. It imports no driver: a dialect turns typed arguments into a
// [Query], and whoever holds a connection runs it.
package dialect

// Query is one statement and its arguments, ready for any database/sql driver
// of the dialect's database.
type Query struct {
	SQL  string
	Args []any
}
