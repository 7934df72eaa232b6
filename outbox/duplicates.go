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

// Duplicates selects how a Writer treats a duplicate: a message whose ID occurs earlier in the
// same call, or was already written by a Writer that checks for duplicates. These Writers keep
// the ids in the table <table>_ids, which other Writers don't touch. A message without an ID
// is never a duplicate, because the Writer generates a new ID for it.
//
// The table of ids keeps an ID while its message is scheduled, waits for delivery or is parked,
// and at least for the relays' retention, counted from the time when the message was written.
// After that, a relay deletes the ID. With a retention of 0, the ID is deleted soon after its message
// was delivered or discarded. [Writer.Cancel] deletes it immediately.
//
// If two transactions write the same ID concurrently, the second one waits for the first one to end. If
// the first one commits, the second message is a duplicate; if it is rolled back, the second message is
// not. At an isolation level above READ COMMITTED the second transaction may fail with a serialization
// error instead. A transaction should write all its IDs in one Write: Write sorts the IDs, so that two
// transactions with one Write each can't deadlock. Transactions with several Writes can deadlock.
//
// The check inserts one more row for each message with an ID, and runs one more statement for
// each Write. It needs a transaction, and the rights that outbox/README.md lists.
type Duplicates int

const (
	// AllowDuplicates writes every message without a check.
	AllowDuplicates Duplicates = iota

	// RefuseDuplicates makes Write fail with a [*DuplicateError] if one of its messages is a
	// duplicate. Write then writes none of its messages, and the transaction can continue.
	RefuseDuplicates

	// KeepFirst skips duplicates without an error and writes the other messages.
	KeepFirst
)

// ErrDuplicate is the error that every [DuplicateError] matches with errors.Is.
var ErrDuplicate = errors.New("duplicate message")

// DuplicateError is the error of a [Writer.Write] that wrote none of its messages because some
// of them are duplicates.
type DuplicateError struct {
	IDs []string // the duplicates' ids in lower case, each once, sorted
}

// Error lists at most ten ids.
func (e *DuplicateError) Error() string {
	if more := len(e.IDs) - 10; more > 0 {
		return fmt.Sprintf("messages with these ids were already written: %s and %d more", strings.Join(e.IDs[:10], ", "), more)
	}
	return "messages with these ids were already written: " + strings.Join(e.IDs, ", ")
}

// Is makes the error match ErrDuplicate.
func (e *DuplicateError) Is(target error) bool { return target == ErrDuplicate }

// withoutDuplicates inserts the caller's ids into the table of ids. It returns the
// rows that are not duplicates, or a DuplicateError if the Writer refuses duplicates.
//
// One statement inserts all ids that don't exist yet. If it inserts fewer rows than there are ids, some
// ids existed, and insertIDs then inserts each id separately to find out which ones. insertIDs runs no
// SELECT, because tx may lack QueryContext. On PostgreSQL an error would abort the transaction, so
// the statements skip existing ids without an error.
func (w *Writer) withoutDuplicates(ctx context.Context, tx Execer, messages []Message, rows []dialect.Row) ([]dialect.Row, error) {
	var ids, twice []string
	first := make(map[string]int, len(rows)) // the index of each id's first row; -1: the id was already written
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
		return nil, fmt.Errorf("check for duplicates: %w", err)
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

// insertIDs inserts the sorted ids and returns the ones that already existed. If the Writer
// refuses duplicates and some ids existed, insertIDs deletes the ids that it has inserted.
func (w *Writer) insertIDs(ctx context.Context, tx Execer, ids []string) (known []string, err error) {
	token := cmp.Or(rand.Int64(), 1) // not 0, because DeleteIDs with 0 deletes ids with any token
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
	if w.duplicates == RefuseDuplicates && len(known) > 0 { // known is empty if a Cancel or a relay has meanwhile deleted the existing ids, so that the loop inserted all of them
		err = w.run(ctx, tx, takeBack)
	}
	return known, err
}
