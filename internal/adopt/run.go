package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// batchRows is the largest number of rows that one transaction forwards while writers continue.
	batchRows = 1000

	// patience is how long Run and Undo try to get the lock.
	patience = 10 * time.Minute

	// betweenTries is the mean pause between two tries to get the lock. Writers work in it.
	betweenTries = 2 * time.Second
)

// Progress is called by Run after each batch with the number of rows forwarded so far, and after each failed try to lock
// the table with the number of the try. It may be nil.
type Progress func(forwarded int64, try int)

// Run forwards the backlog and creates the triggers. If it is interrupted, all is as if it had stopped between two batches:
// call it again to continue. It returns the number of forwarded rows of the backlog.
//
// While writers have transactions open, Run waits for the lock at most half a second at a time (on MySQL and MariaDB, one
// second), because other writers wait behind it. It tries again for ten minutes.
func (a *Adoption) Run(ctx context.Context, progress Progress) (forwarded int64, err error) {
	if err := a.Check(); err != nil {
		return 0, err
	}
	if progress == nil {
		progress = func(int64, int) {}
	}
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if err := a.base.prepare(ctx, conn, a); err != nil {
		return 0, err
	}
	marks := a.marks()
	if marks && !a.onlyNew() {
		for {
			moved, err := a.batch(ctx, conn)
			if err != nil {
				return forwarded, fmt.Errorf("forward the rows that wait in %s: %w", a.Table.Name, err)
			}
			forwarded += moved
			progress(forwarded, 0)
			if moved < batchRows/10 { // a few rows are missing from a batch if another session has changed them meanwhile
				break
			}
		}
	}
	skip := a.onlyNew() || !marks && a.placed.Way != "" // then the first run has forwarded all
	var rest int64
	err = a.patiently(ctx, func(try int) error {
		rest = 0
		err := a.base.switchOver(ctx, conn, a, func(ctx context.Context, q queryer) error {
			for !skip {
				limit := batchRows
				if !marks {
					limit = 0
				}
				moved, err := a.base.batch(ctx, q, a, limit)
				if rest += moved; err != nil || moved < batchRows || !marks {
					return err
				}
			}
			return nil
		})
		if errors.Is(err, errLocked) {
			progress(forwarded, try)
		}
		return err
	})
	if err != nil {
		return forwarded, fmt.Errorf("create the trigger on %s: %w", a.Table.Name, err)
	}
	a.placed.Way = a.Way
	return forwarded + rest, nil
}

// batch forwards the first rows of the backlog in a transaction of its own.
func (a *Adoption) batch(ctx context.Context, conn *sql.Conn) (moved int64, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	if moved, err = a.base.batch(ctx, tx, a, batchRows); err != nil {
		return 0, err
	}
	return moved, tx.Commit()
}

// Undo removes the triggers, and gives a renamed table its name back. Messages that are in the outbox stay there.
func (a *Adoption) Undo(ctx context.Context, progress Progress) error {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	err = a.patiently(ctx, func(try int) error {
		err := a.base.undo(ctx, conn, a)
		if errors.Is(err, errLocked) && progress != nil {
			progress(0, try)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove the trigger from %s: %w", a.Table.Name, err)
	}
	a.placed = Placed{}
	return nil
}

// patiently calls the function try until it doesn't return errLocked, with pauses in which writers can work.
func (a *Adoption) patiently(ctx context.Context, try func(number int) error) error {
	deadline := time.Now().Add(patience)
	for number := 1; ; number++ {
		err := try(number)
		if !errors.Is(err, errLocked) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w by open transactions for %v: end them, or try again when fewer programs write", err, patience)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(rand.Int64N(int64(2 * betweenTries)))):
		}
	}
}

// execute runs the statements of templates.
func (a *Adoption) execute(ctx context.Context, q queryer, templates ...string) error {
	for _, name := range templates {
		list, err := a.statements(name, 0)
		if err != nil {
			return err
		}
		for _, statement := range list {
			if _, err := q.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
	}
	return nil
}
