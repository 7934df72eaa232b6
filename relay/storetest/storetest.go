// Package storetest is the conformance suite that every [storage.Store] must pass, with every
// database, dialect and driver.
//
// A store's test passes a [Harness]:
//
//	func TestStore(t *testing.T) { storetest.Run(t, storetest.Harness{Open: openTable}) }
//
// Each check is a function that takes a [Table], so the suite can also run on stores with deliberate
// mistakes. mutants_test.go proves that the suite finds these mistakes.
package storetest

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Harness defines how the suite opens its tables, and what their database can't do.
type Harness struct {
	// Open creates an empty table with the schema. The table belongs to one check and is removed
	// when the check's test ends. Open is required. Checks run in parallel.
	Open func(t testing.TB) Table

	// Within runs a check in an environment of the harness, for example in a bubble of
	// testing/synctest for a store with a fake clock. By default the check is called directly.
	Within func(t *testing.T, check func(t testing.TB))

	// OneWriter reports that the database allows one writing transaction at a time, so that ids are
	// committed in order. The suite then skips the checks that keep several writing transactions open,
	// or rows locked. If OneWriter is false, the tables must implement [RowLocker].
	OneWriter bool

	// Waits reports that the database can't skip locked rows: a claim waits for the transaction that has
	// locked a free row. The suite then omits the check that a claim skips locked rows.
	Waits bool

	// ByRows reports that the store claims by rows only. The suite then skips the checks that claim by
	// lanes.
	ByRows bool
}

// Table is a table of messages. It gives a check the access that producers, relays and operators
// have.
type Table interface {
	// Store returns a new handle of the table. Like a handle in another process, it shares only the
	// table with the other handles.
	Store(t testing.TB) Store

	// Begin starts a producer's transaction.
	Begin(t testing.TB) Tx
}

// Store has all the methods that the suite tests.
type Store interface {
	storage.Store
	storage.Operator
}

// Tx is a producer's transaction, on its own connection. Only one goroutine calls its methods. That
// goroutine can differ from the test's, so if the database fails, the methods call Errorf and not
// Fatalf.
type Tx interface {
	// Insert writes a message and returns the id of its row, or 0 after an error.
	Insert(message outbox.Message) int64

	// InsertAs writes a message with an id that was assigned before, as happens after a reset
	// of the id sequence.
	InsertAs(id int64, message outbox.Message)
	Commit()
	Rollback()
}

// Filler is implemented by a Tx that can insert many messages with few statements. Without it, the
// checks that need many rows insert them one by one, which takes most of the checks' time.
type Filler interface {
	Fill(messages []outbox.Message)
}

// RowLocker is implemented by a Table that can lock a single row. A check uses the lock to stop
// a settlement in the middle: the settlement has locked its lanes, and waits when it reaches the row. A
// table of a SQL database locks the row with SELECT … FOR UPDATE on a second connection, and asks the
// server which sessions wait.
type RowLocker interface {
	// LockRow locks a pending row against changes, but not against reads. The function waiting
	// reports whether a session waits for the lock, and the function unlock unlocks the row. unlock may be
	// called more than once, and the table calls it when the test ends.
	LockRow(t testing.TB, id int64) (waiting func() bool, unlock func())
}

// Run runs the suite. Each check is a parallel subtest with its own table.
func Run(t *testing.T, harness Harness) {
	for _, check := range harness.checks() {
		t.Run(check.name, func(t *testing.T) {
			t.Parallel()
			harness.within(t, func(t testing.TB) { check.run(t, harness.Open(t)) })
		})
	}
}

// Checks returns the names of the checks that Run runs.
func (h Harness) Checks() (names []string) {
	for _, check := range h.checks() {
		names = append(names, check.name)
	}
	return names
}

func (h Harness) checks() (wanted []check) {
	for _, check := range checks() {
		if check.manyWriters && h.OneWriter || check.passesOver && h.Waits || h.ByRows && !check.byRows {
			continue
		}
		wanted = append(wanted, check)
	}
	return wanted
}

func (h Harness) within(t *testing.T, check func(testing.TB)) {
	if h.Within == nil {
		check(t)
		return
	}
	h.Within(t, check)
}
