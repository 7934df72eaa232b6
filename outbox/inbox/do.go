package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// tries are how often Do begins where the database is busy.
const tries = 4

// Do is [Inbox.Once] with the transaction around it: it begins one on db, calls
// effect if this is the first time, and commits. Once it has returned without an
// error, acknowledge the message: its effect is there, and first says whether it
// is from this time.
//
// If effect fails, everything is taken back, and the error is returned. Where the
// database was busy, effect may be called several times, each in a transaction of
// its own, of which one at most commits; so it should write with tx and do
// nothing else, nor commit it or roll it back.
func (i *Inbox) Do(ctx context.Context, db *sql.DB, messageID string, effect func(tx *sql.Tx) error) (first bool, err error) {
	if err := i.notMade(); err != nil {
		return false, err
	}
	if db == nil || effect == nil {
		return false, i.failed("handle", messageID, errors.New("the database or the effect is nil: give the *sql.DB that sql.Open returned, and a function"))
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
