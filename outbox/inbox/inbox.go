package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/internal/handle"
)

// ErrBusy is wrapped by errors that may not recur if the transaction is tried again,
// such as a deadlock. Roll the transaction back before you try again.
var ErrBusy = errors.New("the database was busy")

// Inbox recognises the messages that one consumer has received. It holds no
// connection. Make one Inbox at the start of the program and keep it. All methods
// may be called concurrently.
type Inbox struct {
	dialect  dialect.Dialect
	table    dialect.Table
	consumer string
	window   time.Duration
}

// Once records, in the transaction tx, that the consumer has received the message,
// and returns true if this is the first time. Then apply the message's effect in the
// same transaction. If Once returns false, the effect is already committed: don't
// apply it again, and acknowledge the message.
//
// If another transaction is handling the same message, Once waits for it to end. If
// that transaction commits, Once returns false; if it rolls back, true. At an
// isolation level above READ COMMITTED, and after a deadlock or a lock timeout, Once
// may instead return an error that matches [ErrBusy].
//
// After any error, roll back and don't acknowledge the message, so that it is
// delivered again. If the id is invalid, the error matches [ErrInvalid].
func (i *Inbox) Once(ctx context.Context, tx outbox.Execer, messageID string) (first bool, err error) {
	if err := i.notMade(); err != nil {
		return false, err
	}
	if first, err = i.once(ctx, tx, messageID); err != nil {
		return false, fmt.Errorf("receive message %.40q into %s for consumer %s: %w", messageID, i.table, i.consumer, err)
	}
	return first, nil
}

// notMade returns an error if i wasn't created by New.
func (i *Inbox) notMade() error {
	if i == nil || i.dialect == nil {
		return errors.New("the inbox is nil or empty: use what New returned, after checking its error")
	}
	return nil
}

func (i *Inbox) once(ctx context.Context, tx outbox.Execer, messageID string) (first bool, err error) {
	if err := checkText(messageID, maxMessageID); err != nil {
		return false, fmt.Errorf("%w: the id %w", ErrInvalid, err)
	}
	if err := checkHandle(tx); err != nil {
		return false, err
	}
	query := i.dialect.Receive(i.table, i.consumer, messageID)
	result, err := tx.ExecContext(ctx, query.SQL, query.Args...)
	if i.dialect.Received(err) {
		return false, nil
	}
	if err != nil {
		return false, i.explained(err)
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

// checkHandle refuses nil and a pool. On a pool each statement is a separate
// transaction, so the id would be committed even if the effect failed, and the
// effect would be lost.
func checkHandle(tx outbox.Execer) error {
	if handle.IsNil(tx) {
		return fmt.Errorf("the transaction is nil (%T): pass the transaction that applies the message's effect", tx)
	}
	if handle.Begins(tx) {
		return errors.New("a pool or a connection, such as a *sql.DB, is not a transaction: pass the *sql.Tx that applies the message's effect")
	}
	return nil
}

// Clean deletes the consumer's ids that are older than the window on the database's
// clock, and returns the number of deleted ids. Pass a *sql.DB: Clean deletes at
// most 1,000 ids per statement, so that each transaction is short. Call Clean
// regularly, for instance once an hour. Several processes may call it.
func (i *Inbox) Clean(ctx context.Context, db outbox.Execer) (deleted int64, err error) {
	if err := i.notMade(); err != nil {
		return 0, err
	}
	if handle.IsNil(db) {
		return 0, fmt.Errorf("clean %s for consumer %s: the database is nil (%T): pass the *sql.DB that sql.Open returned", i.table, i.consumer, db)
	}
	for {
		n, err := i.cleanPart(ctx, db)
		if err != nil {
			return deleted, fmt.Errorf("clean %s for consumer %s: %w", i.table, i.consumer, err)
		}
		if deleted += n; n < cleanPart {
			return deleted, nil
		}
	}
}

// cleanPart is the maximum number of ids that one statement deletes.
const cleanPart = 1000

func (i *Inbox) cleanPart(ctx context.Context, db outbox.Execer) (int64, error) {
	query := i.dialect.PurgeReceived(i.table, i.consumer, i.window, cleanPart)
	result, err := db.ExecContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return 0, i.explained(err)
	}
	return result.RowsAffected()
}

// explained adds a hint for the caller to an error whose cause is known.
func (i *Inbox) explained(err error) error {
	switch {
	case i.dialect.Busy(err):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case i.dialect.Missing(err):
		return fmt.Errorf("the table is missing: create it with rowrelay migrate up --inbox. If it has another name, set Options.Table to that name, with the schema if the schema isn't in search_path: %w", err)
	case dialect.Misunderstood(err):
		return fmt.Errorf("the database doesn't understand the SQL of dialect %s: pass this database's dialect to New: %w", i.dialect.Name(), err)
	case i.dialect.Denied(err):
		return fmt.Errorf("the user lacks a right: a consumer needs INSERT, SELECT and DELETE on %s: %w", i.table, err)
	}
	return err
}
