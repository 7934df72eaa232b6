package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// CancelAhead limits [Writer.Cancel], which cancels only messages whose AvailableAt is more than
// CancelAhead in the future. The transaction has to commit at most CancelAhead after the call.
const CancelAhead = 5 * time.Second

// Cancel deletes scheduled messages in the transaction tx and returns the ids of the messages
// that it deleted, sorted and in lower case. A message can be cancelled if no relay has tried
// to deliver it and its AvailableAt is more than [CancelAhead] in the future on the database's
// clock. If an id isn't returned, its message has been delivered or may still be delivered,
// was never scheduled, was already cancelled, or doesn't exist.
//
// A message whose id is returned is never sent, if the transaction commits within five seconds
// after the call. Until the deletion is committed, a relay still sees the message and sends it
// when it is due; this is why a message can't be cancelled in the last five seconds before it
// is due. Call Cancel late in a transaction, and keep the transaction short: if a relay is
// about to move the same message to the held table, the relay waits for the transaction to end.
// If the transaction is rolled back, the messages are delivered when they are due.
//
// At READ COMMITTED, Cancel deletes all cancellable messages that the transaction can see. On SQLite,
// MySQL, and MariaDB before 11.6 the same is true at every isolation level. On the other databases, at
// a higher level, Cancel may fail with a serialization error, or may not return the id of a message that
// a relay is moving at that moment.
//
// An id is the UUID that the message was written with; for any other text Cancel returns an
// error that matches [ErrInvalid]. With Options.Duplicates, Cancel also deletes the ids of
// cancelled messages from the table of ids, so that the same transaction can write a message
// with the same ID and a new time. Cancel refuses a *sql.DB and a *pgx.Batch. On MySQL and
// MariaDB tx must also have the method QueryContext, as a *sql.Tx has. outbox/README.md lists
// the rights that Cancel needs. Cancel runs at most three short statements for each id.
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
			return nil, &ValidationError{Index: i, ID: id, Field: "ID", Rule: "must be the UUID that the message was written with"}
		}
		ids[i] = strings.ToLower(id)
	}
	if err := w.checkHandle(tx, true); err != nil {
		return nil, err
	}
	slices.Sort(ids) // always the same order, so that concurrent calls with the same ids can't deadlock
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
			return false, fmt.Errorf("a %T has no QueryContext, which Cancel needs on this database: pass the *sql.Tx", tx)
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
