package dialect

// Relaying is what a relay's store needs of a dialect. Times are the
// database's; durations are given in whole milliseconds.
type Relaying interface {
	Schema
	Errors
}

// Schema is about the tables themselves.
type Schema interface {
	// SchemaVersion selects the version of the tables, as text.
	SchemaVersion(table Table) Query

	// MakeRowIndexes makes the indexes that claiming by rows needs, where they
	// are missing, one statement each. DropRowIndexes drops them.
	MakeRowIndexes(table Table) []Query
	DropRowIndexes(table Table) []Query
}

// Errors tells what a driver's error means, without knowing the driver.
type Errors interface {
	// Busy: the database refused for the moment and changed nothing.
	Busy(err error) bool

	// Missing: a table or a schema isn't there.
	Missing(err error) bool

	// Denied: the user lacks a right.
	Denied(err error) bool
}
