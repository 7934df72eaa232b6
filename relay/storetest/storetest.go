// Package storetest is the suite that every [storage.Store] passes, whatever its
// database, its dialect and its driver.
//
// A store's test gives it a [Harness]:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{Open: openTable})
//	}
//
// Each check is a function over a [Table], so that the suite can be turned
// against a store with a deliberate mistake: mutants_test.go proves that it
// finds them.
package storetest

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Harness says how the suite gets its tables.
type Harness struct {
	// Open makes an empty table with the schema in place, which belongs to one
	// check and is taken away when the check's test ends. Required. Checks run
	// in parallel.
	Open func(t testing.TB) Table

	// Within runs a check in surroundings of the harness's own, such as a
	// bubble of testing/synctest for a store that lives by a fake clock.
	// Defaults to calling it.
	Within func(t *testing.T, check func(t testing.TB))

	// OneWriter says that the database lets only one transaction write at a
	// time, so that ids are committed in order. The checks that keep several
	// writing transactions open at once, or rows locked, are left out. Without
	// it the tables have to be a [RowLocker].
	OneWriter bool

	// Waits says that the database can't pass over locked rows: a claim waits for
	// whoever has locked one that is free. The check of that is left out.
	Waits bool

	// ByRows says that the store claims by rows only. The checks that do
	// anything by lanes are left out.
	ByRows bool
}

// Table is one table of messages, as its producers, relays and operators see
// it.
type Table interface {
	// Store returns a new handle that shares nothing with the others but the
	// table, as another process would have one.
	Store(t testing.TB) Store

	// Begin starts a producer's transaction.
	Begin(t testing.TB) Tx
}

// Store is what is tested.
type Store interface {
	storage.Store
	storage.Operator
}

// Tx is a producer's transaction: a real one, on a connection of its own. Its
// methods are called by one goroutine, not always the test's own: where the
// database refuses they call Errorf, not Fatalf.
type Tx interface {
	// Insert writes a message and returns the id of its row; 0 after an error.
	Insert(message outbox.Message) int64

	// InsertAs writes a message with an id that was given out before, as a table
	// does whose numbering has begun anew.
	InsertAs(id int64, message outbox.Message)
	Commit()
	Rollback()
}

// Filler is implemented by a Tx that can insert many messages by a few statements.
// Without it the checks of many rows insert one by one, which takes most of their time.
type Filler interface {
	Fill(messages []outbox.Message)
}

// RowLocker is implemented by a Table that can lock one row and leave all
// others alone. By it a check holds a settle open in its middle: the settle has
// locked its lanes when it comes upon the row and waits. In SQL it is a second
// connection with SELECT … FOR UPDATE, and a look at the server's list of
// waiting sessions.
type RowLocker interface {
	// LockRow locks a pending row against changes. It can still be read.
	// Waiting says whether someone waits for the lock. Unlock may be called
	// more than once; the table calls it when the test ends.
	LockRow(t testing.TB, id int64) (waiting func() bool, unlock func())
}

// Run runs the suite, each check as a parallel subtest with a table of its
// own.
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
