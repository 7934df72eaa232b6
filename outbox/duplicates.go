package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Duplicates says what becomes of a message whose ID the table still knows, because a
// Writer that asks for the same has written it before, or the same call has it twice. Ids
// are kept in a table of their own, <table>_ids, which no other Writer touches. Messages
// without an ID aren't meant: theirs is made by the Writer, and nobody has it yet.
//
// The table knows an ID as long as its message is scheduled, waits to be delivered or is
// parked, and in any case for as long after it was written as relays keep what is delivered
// (their retention). Then a relay forgets it. So without retention an ID is known
// while its message waits, and little longer. [Writer.Cancel] forgets it at once.
//
// Of two transactions that write the same ID at a time the second one waits for the first
// to end: where that commits there is a duplicate, where it is rolled back there is none.
// At a level above READ COMMITTED the second one may fail with a serialization error
// instead. A transaction should write all its IDs in one Write, which takes them in one
// order: else two may wait for each other.
//
// An ID costs an insert more for each message, and one statement more for each Write; it
// needs a transaction, and the rights that outbox/README.md names.
type Duplicates int

const (
	// AllowDuplicates writes every message, and asks nothing.
	AllowDuplicates Duplicates = iota

	// RefuseDuplicates makes Write fail if there is a duplicate, with a [*DuplicateError].
	// None of its messages is written then, and the transaction can go on.
	RefuseDuplicates

	// KeepFirst leaves duplicates out without a word, and writes the others.
	KeepFirst
)

// ErrDuplicate is what every [DuplicateError] matches with errors.Is.
var ErrDuplicate = errors.New("duplicate message")

// DuplicateError names the messages that a [Writer.Write] has refused, and with them all
// others of the call, because the table knows their ids.
type DuplicateError struct {
	IDs []string // in lower case, each once, sorted
}

// Error names ten ids at most.
func (e *DuplicateError) Error() string {
	if more := len(e.IDs) - 10; more > 0 {
		return fmt.Sprintf("duplicates, whose ids are known: %s and %d more", strings.Join(e.IDs[:10], ", "), more)
	}
	return "duplicates, whose ids are known: " + strings.Join(e.IDs, ", ")
}

// Is makes the error match ErrDuplicate.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// withoutDuplicates inserts the ids that the caller has given, and returns the rows whose ids
// nobody had inserted before. The others are left out, or refused.
//
// One statement inserts all ids but those that are there, and tells how many it was: mostly
// all. Else each is tried by itself. Nothing is asked by a SELECT, which a handle may not
// have, and nothing fails, which would end a transaction on PostgreSQL.
func (w *Writer) withoutDuplicates(ctx context.Context, tx Execer, messages []Message, rows []dialect.Row) ([]dialect.Row, error) {
	var ids, twice []string
	first := make(map[string]int, len(rows)) // the place of each id's first row
	for i := range rows {
		if messages[i].ID == "" {
			continue
		}
		if _, seen := first[rows[i].MessageID]; seen {
			twice = append(twice, rows[i].MessageID)
			continue
		}
		first[rows[i].MessageID] = i
		ids = append(ids, rows[i].MessageID)
	}
	if w.duplicates == RefuseDuplicates && len(twice) > 0 {
		return nil, duplicateError(twice)
	}
	if len(ids) == 0 {
		return rows, nil
	}
	slices.Sort(ids)
	known, err := w.insertIDs(ctx, tx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for duplicates: %w", err)
	}
	if w.duplicates == RefuseDuplicates && len(known) > 0 {
		return nil, duplicateError(known)
	}
	for _, id := range known {
		first[id] = -1
	}
	var kept []dialect.Row
	for i, row := range rows {
		if messages[i].ID == "" || first[row.MessageID] == i {
			kept = append(kept, row)
		}
	}
	return kept, nil
}

func duplicateError(ids []string) error {
	slices.Sort(ids)
	return &DuplicateError{IDs: slices.Compact(ids)}
}

// insertIDs inserts ids, which are sorted, and returns those that were there. If some were
// and duplicates are refused, it leaves none of its own behind.
func (w *Writer) insertIDs(ctx context.Context, tx Execer, ids []string) (known []string, err error) {
	token := cmp.Or(rand.Int64(), 1) // 0 means any
	insert := func(ids []string) (int, error) {
		n, err := w.count(ctx, tx, w.dialect.InsertIDs(w.table, ids, token))
		if err != nil && w.dialect.Received(err) {
			return 0, nil
		}
		return int(n), err
	}
	inserted, err := insert(ids)
	if err != nil || inserted == len(ids) {
		return nil, err
	}
	if len(ids) == 1 {
		return ids, nil
	}
	takeBack := w.dialect.DeleteIDs(w.table, ids, token)
	if err := w.run(ctx, tx, takeBack); err != nil {
		return nil, err
	}
	for _, id := range ids {
		inserted, err := insert([]string{id})
		if err != nil {
			return nil, err
		}
		if inserted == 0 {
			known = append(known, id)
		}
	}
	if w.duplicates == RefuseDuplicates && len(known) > 0 { // a Cancel or a relay may have forgotten all of them meanwhile
		err = w.run(ctx, tx, takeBack)
	}
	return known, err
}
