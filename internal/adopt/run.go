package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// While writers continue, the first transaction forwards at most firstRows rows. Each later one may forward twice as many as
	// the one before it, up to lastRows. The batches grow because the search for waiting rows gets slower with each forwarded
	// row, while writers add new rows.
	firstRows = 1000
	lastRows  = 32_000

	// lockedRows is the largest number of rows that are forwarded while writers wait, if rows are marked.
	lockedRows = 4000

	// patience is how long Run and Undo try to get the lock.
	patience = 10 * time.Minute

	// The mean pause between two attempts to get the lock doubles from firstPause to lastPause. Writers continue during the pauses.
	firstPause = 250 * time.Millisecond
	lastPause  = 4 * time.Second
)

// Progress is called by Run after each batch with the number of rows forwarded so far, and after each failed attempt to lock
// the table with the number of the attempt. It may be nil.
type Progress func(forwarded int64, try int)

// Run forwards the backlog and creates the triggers. If the context ends, Run completes the batch in progress and returns; another
// call continues after this batch. Run doesn't roll the batch back, because even an UPDATE that is rolled back changes a row's cmin,
// which may be part of the order. Run returns the number of rows of the backlog that this call has forwarded.
//
// While writers have transactions open, Run waits for the lock at most half a second at a time (on MySQL and MariaDB, one
// second), because other writers wait meanwhile. It tries again for ten minutes.
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
	if err := a.patiently(ctx, func(int) error { return a.begin(ctx, conn) }); err != nil {
		return 0, fmt.Errorf("record the mapping: %w", err)
	}
	defer func() {
		if err != nil && forwarded == 0 && ctx.Err() == nil && !a.busy(err) {
			err = errors.Join(err, a.update(ctx, conn, func(r *record) { r.Failed = true }))
		}
	}()
	if err := a.base.prepare(ctx, conn, a); err != nil {
		return 0, err
	}
	whole := context.WithoutCancel(ctx)
	err = a.patiently(ctx, func(try int) error {
		for rows := firstRows; a.marks() && !a.onlyNew() && (a.marksNew() || a.placed.Way == ""); rows = min(2*rows, lastRows) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			moved, err := a.batch(whole, conn, rows)
			if err != nil {
				return fmt.Errorf("forward the rows that wait in %s: %w", a.Table.Name, err)
			}
			forwarded += moved
			progress(forwarded, 0)
			if moved < int64(rows) {
				break
			}
		}
		rest, done := int64(0), false
		err := a.base.switchOver(whole, conn, a, func(ctx context.Context, q queryer) (_ bool, err error) {
			rest, done, err = a.rest(ctx, q)
			return done, err
		})
		if a.busy(err) {
			progress(forwarded, try)
		}
		if err != nil {
			return err
		}
		forwarded += rest
		if !done {
			return errMore
		}
		return nil
	})
	if err != nil {
		return forwarded, fmt.Errorf("create the trigger on %s: %w", a.Table.Name, err)
	}
	a.placed.Way = a.Way
	return forwarded, nil
}

// hold locks the record, and looks for the trigger again. Another run may have created the trigger since Open, or the server may have
// completed the statement of a run that was killed.
func (a *Adoption) hold(ctx context.Context, q queryer) (r record, err error) {
	if r, _, err = a.readRecord(ctx, q, "hold"); err != nil {
		return r, err
	}
	ways, err := a.texts(ctx, q, "placed")
	if err != nil {
		return r, err
	}
	a.placed = placed{}
	for _, way := range ways {
		a.placed.Way = Way(way)
	}
	return r, a.checkWay()
}

// rest forwards the rest of the backlog while writers wait. If rows are marked, it forwards at most lockedRows of them, and done is
// false if more rows may wait. If rows aren't marked, it forwards the whole backlog.
func (a *Adoption) rest(ctx context.Context, q queryer) (forwarded int64, done bool, err error) {
	r, err := a.hold(ctx, q)
	if err != nil {
		return 0, false, err
	}
	switch {
	case a.onlyNew(), a.placed.Way != "" && !a.marksNew(): // if the trigger exists, the run that created it has forwarded the backlog
		done = true
	case a.marks():
		forwarded, err = a.base.batch(ctx, q, a, lockedRows)
		done = forwarded < lockedRows
	default:
		if done = true; !r.Complete { // if the record is complete, somebody has dropped the trigger
			forwarded, err = a.base.batch(ctx, q, a, 0)
		}
	}
	if err != nil {
		return 0, false, err
	}
	r.Forwarded += forwarded
	r.Complete = done && !a.lists() // if forwarded rows are listed, switchOver completes the record
	return forwarded, done, a.writeRecord(ctx, q, "save record", r)
}

// batch forwards the first rows of the backlog in a transaction of its own.
func (a *Adoption) batch(ctx context.Context, conn *sql.Conn, rows int) (moved int64, err error) {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	r, err := a.hold(ctx, tx)
	if err != nil || a.placed.Way != "" && !a.marksNew() {
		return 0, err
	}
	if err := a.execute(ctx, tx, "path"); err != nil {
		return 0, err
	}
	before, err := a.first(ctx, tx)
	if err != nil {
		return 0, err
	}
	if moved, err = a.base.batch(ctx, tx, a, rows); err != nil {
		return 0, err
	}
	if after, err := a.first(ctx, tx); err != nil {
		return 0, err
	} else if before != "" && before == after {
		return 0, fmt.Errorf("a row still waits after it was marked: the assignments %s must make the condition %s false", strings.Join(a.Mapping.Published, ", "), a.Mapping.Waiting)
	}
	r.Forwarded += moved
	if err := a.writeRecord(ctx, tx, "save record", r); err != nil {
		return 0, err
	}
	return moved, tx.Commit()
}

// first returns the key of the first row that waits, or "".
func (a *Adoption) first(ctx context.Context, q queryer) (key string, err error) {
	statement, err := a.render("first", 0)
	if err != nil {
		return "", err
	}
	values := make([]any, len(a.Table.Key))
	destinations := make([]any, len(values))
	for i := range values {
		destinations[i] = &values[i]
	}
	err = q.QueryRowContext(ctx, statement).Scan(destinations...)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return fmt.Sprint(values...), err
}

// Undo removes the triggers, and gives a renamed table its name back. Messages that are in the outbox stay there. If forwarded rows
// are not marked, Undo returns the SQL condition of the rows that were not forwarded, such as id > 42. It returns "" if rows are
// marked, if the backlog is not forwarded completely, or if the database doesn't number the rows.
func (a *Adoption) Undo(ctx context.Context, progress Progress) (rest string, err error) {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	look := func(ctx context.Context, q queryer) (err error) {
		rest, err = a.notForwarded(ctx, q)
		return err
	}
	err = a.patiently(ctx, func(try int) error {
		err := a.base.undo(ctx, conn, a, look)
		if a.busy(err) && progress != nil {
			progress(0, try)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("remove the trigger from %s: %w", a.Table.Name, err)
	}
	a.placed, a.recorded = placed{}, false
	return rest, nil
}

// notForwarded returns the result of Undo. The caller has locked the table.
func (a *Adoption) notForwarded(ctx context.Context, q queryer) (string, error) {
	r, _, err := a.readRecord(ctx, q, "read")
	number := a.Table.number()
	if err != nil || a.marks() || a.Way == View || !r.Complete || number == "" {
		return "", err
	}
	var last sql.NullString
	err = q.QueryRowContext(ctx, "SELECT max("+a.base.quote(number)+") FROM "+a.inSchema(a.Table.Name)).Scan(&last)
	if err != nil || !last.Valid {
		return "", err
	}
	return number + " > " + last.String, nil
}

// errMore means that more rows wait than were forwarded under the lock, and that no trigger was created.
var errMore = errors.New("more rows wait")

// patiently repeats the function try while it returns errMore or a lock error. It pauses after each lock error, so that writers can
// continue, and gives up after ten minutes (the constant patience).
func (a *Adoption) patiently(ctx context.Context, try func(number int) error) error {
	deadline := time.Now().Add(patience)
	for number, pause := 1, firstPause; ; number, pause = number+1, min(2*pause, lastPause) {
		err := try(number)
		if errors.Is(err, errMore) {
			continue
		}
		if !a.busy(err) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("open transactions have held locks for %v: end them, or try again when fewer programs write: %w", patience, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Duration(rand.Int64N(int64(2 * pause)))):
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
