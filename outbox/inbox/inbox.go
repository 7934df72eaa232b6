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

// ErrBusy is in the chain of an error after which everything may be well at the
// next try: the database refused for the moment, as after a deadlock. Roll the
// transaction back first.
var ErrBusy = errors.New("the database was busy")

// Inbox recognises the messages that one consumer has received. It holds no
// connection; make one at the start of the program and keep it. All methods may
// be called concurrently.
type Inbox struct {
	dialect  dialect.Dialect
	table    dialect.Table
	consumer string
	window   time.Duration
}

// Once records that the consumer has received the message, in the transaction
// tx of its effect, and says whether it is the first time. If it isn't, the
// effect is there already: leave it out, and acknowledge the message.
//
// Where another transaction is working on the same message, Once waits for its
// end. If that one commits, this isn't the first time; if it rolls back, it is.
// At levels of isolation above READ COMMITTED, after a deadlock, or after a wait
// that the database takes for too long, the error matches [ErrBusy] instead.
//
// After any error, roll back, don't acknowledge the message, and let it come
// again. An id that no message can have is an error that matches [ErrInvalid].
func (i *Inbox) Once(ctx context.Context, tx outbox.Execer, messageID string) (first bool, err error) {
	if err := i.notMade(); err != nil {
		return false, err
	}
	if first, err = i.once(ctx, tx, messageID); err != nil {
		return false, fmt.Errorf("receive message %.40q into %s for consumer %s: %w", messageID, i.table, i.consumer, err)
	}
	return first, nil
}

// notMade is an error if New didn't make it.
func (i *Inbox) notMade() error {
	if i == nil || i.dialect == nil {
		return errors.New("the inbox is nil or empty: use what New returned, once its error was looked at")
	}
	return nil
}

func (i *Inbox) once(ctx context.Context, tx outbox.Execer, messageID string) (first bool, err error) {
	if err := checkText(messageID, maxMessageID); err != nil {
		return false, fmt.Errorf("%w: the message's id %w", ErrInvalid, err)
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

// checkHandle refuses a pool: each of its statements is a transaction, so that
// the id would be there though its effect failed, and the message be lost.
func checkHandle(tx outbox.Execer) error {
	if handle.IsNil(tx) {
		return fmt.Errorf("the transaction is nil (%T): give the one that the message's effect is part of", tx)
	}
	if handle.Begins(tx) {
		return errors.New("a pool or a connection, such as a *sql.DB, is no transaction: give the *sql.Tx that the message's effect is part of")
	}
	return nil
}

// Clean deletes what the consumer received longer ago than the window, by the
// database's clock, and returns how many ids that were. It does so in parts, each
// a transaction by itself, so give it a *sql.DB. Call it now and then, such as
// every hour, from any number of processes.
func (i *Inbox) Clean(ctx context.Context, db outbox.Execer) (deleted int64, err error) {
	if err := i.notMade(); err != nil {
		return 0, err
	}
	if handle.IsNil(db) {
		return 0, fmt.Errorf("clean %s for consumer %s: the database is nil (%T): give the *sql.DB that sql.Open returned", i.table, i.consumer, db)
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

// cleanPart is how many ids are deleted at once.
const cleanPart = 1000

func (i *Inbox) cleanPart(ctx context.Context, db outbox.Execer) (int64, error) {
	query := i.dialect.PurgeReceived(i.table, i.consumer, i.window, cleanPart)
	result, err := db.ExecContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return 0, i.explained(err)
	}
	return result.RowsAffected()
}

// explained adds what to do, where that is known.
func (i *Inbox) explained(err error) error {
	switch {
	case i.dialect.Busy(err):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case i.dialect.Missing(err):
		return fmt.Errorf("the table is missing: create it with rowrelay migrate up --inbox, or name it in Options.Table, with its schema if search_path lacks that: %w", err)
	case dialect.Misunderstood(err):
		return fmt.Errorf("the database doesn't understand %s: give New the dialect of this database: %w", i.dialect.Name(), err)
	case i.dialect.Denied(err):
		return fmt.Errorf("the user lacks a right: a consumer needs INSERT, SELECT and DELETE on %s: %w", i.table, err)
	}
	return err
}
