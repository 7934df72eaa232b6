package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// tries is the maximum number of transactions that Do begins if the database is busy or
// read-only.
const tries = 4

// Do runs [Inbox.Once] and the function effect in one transaction: it begins a
// transaction on db, calls the function if the message is received for the first time,
// and commits. When Do returns without an error, the effect is committed: acknowledge
// the message. Do returns true if this call applied the effect, and false for a duplicate.
//
// If the function fails, Do rolls the transaction back and returns the error. If the
// database is busy or read-only, Do may call the function up to four times, each time
// in a new transaction. At most one of these transactions commits. So the function should
// make all its changes with tx, and must not commit tx or roll it back.
func (i *Inbox) Do(ctx context.Context, db *sql.DB, messageID string, effect func(tx *sql.Tx) error) (first bool, err error) {
	if err := i.notMade(); err != nil {
		return false, err
	}
	if db == nil || effect == nil {
		return false, i.failed("handle", messageID, errors.New("the database or the effect is nil: pass the *sql.DB that sql.Open returned, and a function"))
	}
	for n := 1; ; n++ {
		first, err = i.do(ctx, db, messageID, effect)
		readOnly := i.dialect.ReadOnly(err)
		if readOnly {
			dialect.Redial(ctx, db)
		}
		if n == tries || !readOnly && !errors.Is(err, ErrBusy) || ctx.Err() != nil {
			return first, err
		}
	}
}

func (i *Inbox) do(ctx context.Context, db *sql.DB, messageID string, effect func(tx *sql.Tx) error) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, i.failed("begin the transaction of", messageID, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if first, err = i.Once(ctx, tx, messageID); err != nil || !first {
		return false, err
	}
	if err := effect(tx); err != nil {
		return false, i.failed("handle", messageID, err)
	}
	if err := tx.Commit(); err != nil {
		return false, i.failed("commit the effect of", messageID, err)
	}
	return true, nil
}

func (i *Inbox) failed(what, messageID string, err error) error {
	if i.dialect.Busy(err) {
		err = fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return fmt.Errorf("%s message %.40q for consumer %s: %w", what, messageID, i.consumer, err)
}
