package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CancelAhead is how long before its time a message can be cancelled at the latest, and so the
// time that the transaction of a [Writer.Cancel] has to commit.
const CancelAhead = 5 * time.Second

// Cancel deletes scheduled messages, those with an AvailableAt, in the transaction tx, and
// returns the ids of those that it has deleted, in lower case and sorted. It is for messages
// that nobody has tried to deliver: their time is still to come by the database's clock,
// and by more than five seconds. One whose id isn't returned may be delivered, or has
// been; isn't there, or was never scheduled; or was cancelled before.
//
// What is returned is never sent, if the transaction commits within five seconds after the
// call. Until a deletion is committed a relay still sees the message, and sends it once
// its time has come; that is why a message isn't cancelled in its last five seconds. So
// call Cancel late in a transaction, and keep it short: a relay that is about to put the
// same message aside waits for it. If the transaction is rolled back, the messages are
// delivered at their time.
//
// At READ COMMITTED, and on MySQL, MariaDB and SQLite at any level, whatever the
// transaction can see is cancelled, wherever it is. At a higher level of PostgreSQL or SQL
// Server, and of MariaDB from 11.6 on, a message that a relay moves at this moment makes
// Cancel fail with a serialization error, or isn't returned.
//
// An id is a UUID, as the message was written with; another one is an error that matches
// [ErrInvalid]. With Options.Duplicates the ids of what was cancelled are forgotten, so that
// the same transaction can write a message with the same ID and another time. A *sql.DB or
// a *pgx.Batch won't do; on MySQL and MariaDB tx has QueryContext as well, as transactions
// have. It needs the rights that outbox/README.md names. Each id takes two or three
// short statements.
func (w *Writer) Cancel(ctx context.Context, tx Execer, messageIDs ...string) (cancelled []string, err error) {
	if len(messageIDs) == 0 {
		return nil, nil
	}
	if err := w.notMade(); err != nil {
		return nil, err
	}
	cancelled, err = w.cancel(ctx, tx, messageIDs)
	if err != nil {
		return nil, fmt.Errorf("cancel %s in %s: %w", counted(len(messageIDs)), w.table, err)
	}
	return cancelled, nil
}

func (w *Writer) cancel(ctx context.Context, tx Execer, messageIDs []string) (cancelled []string, err error) {
	ids := make([]string, len(messageIDs))
	for i, id := range messageIDs {
		if broken := brokenID(id); broken != "" || id == "" {
			return nil, &ValidationError{Index: i, ID: id, Field: "ID", Rule: "must be a UUID, as the message was written with"}
		}
		ids[i] = strings.ToLower(id)
	}
	if err := w.checkHandle(tx, true); err != nil {
		return nil, err
	}
	slices.Sort(ids) // two that cancel the same wait for each other at the first
	for _, id := range slices.Compact(ids) {
		deleted, err := w.cancelOne(ctx, tx, id)
		if err != nil {
			return nil, err
		}
		if deleted {
			cancelled = append(cancelled, id)
		}
	}
	if w.duplicates != AllowDuplicates && len(cancelled) > 0 {
		if err := w.run(ctx, tx, w.dialect.DeleteIDs(w.table, cancelled, 0)); err != nil {
			return nil, err
		}
	}
	return cancelled, nil
}

func (w *Writer) cancelOne(ctx context.Context, tx Execer, id string) (deleted bool, err error) {
	find, deletes := w.dialect.Cancel(w.table, id, CancelAhead)
	first := 0
	if find.SQL != "" {
		asked, ok := tx.(interface {
			QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		})
		if !ok {
			return false, fmt.Errorf("a %T can't be asked where a message is: give the *sql.Tx", tx)
		}
		rows, err := asked.QueryContext(ctx, find.SQL, find.Args...)
		if err != nil {
			return false, w.explained(err)
		}
		defer func() { _ = rows.Close() }()
		var lane, row int64
		if !rows.Next() {
			return false, rows.Err()
		}
		if err := rows.Scan(&first, &lane, &row); err != nil {
			return false, err
		}
		if err := rows.Close(); err != nil {
			return false, err
		}
		for i := range deletes {
			deletes[i].Args = append([]any{lane, row}, deletes[i].Args...)
		}
	}
	for i := first; i < len(deletes) && !deleted; i++ {
		n, err := w.count(ctx, tx, deletes[i:i+1])
		if err != nil {
			return false, err
		}
		deleted = n > 0
	}
	return deleted, nil
}
