package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// A busy database is asked again a few times, not for long: the caller knows
// better what else there is to do.
const (
	busyTries    = 4
	busyPause    = 20 * time.Millisecond // at most, before the second try; then more
	busyPatience = time.Second
)

// try carries out what changes nothing when it fails, again while the database
// is busy, and says what it was that failed.
func (s *Store) try(ctx context.Context, what string, work func() error) error {
	start := time.Now()
	for n := 1; ; n++ {
		err := work()
		if err == nil {
			return nil
		}
		if s.dialect.Missing(err) {
			return fmt.Errorf("%s %s: %w: %w", what, s.table, relay.ErrNoSchema, err)
		}
		if !s.dialect.Busy(err) {
			return fmt.Errorf("%s %s: %w", what, s.table, err)
		}
		if n == busyTries || time.Since(start) > busyPatience {
			return fmt.Errorf("%s %s: %w: %w", what, s.table, relay.ErrBusy, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w", what, s.table, ctx.Err())
		case <-time.After(rand.N(busyPause * time.Duration(n))):
		}
	}
}

// write is try for what writes. Where there is one writer at a time our own
// writers wait here, in turn: those that wait for the database's lock look for
// it now and then, and sleep in between.
func (s *Store) write(ctx context.Context, what string, work func() error) error {
	done, err := s.turn(ctx)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, s.table, err)
	}
	defer done()
	return s.try(ctx, what, work)
}

func (s *Store) turn(ctx context.Context) (done func(), err error) {
	if !s.dialect.OneWriter() {
		return func() {}, nil
	}
	select {
	case s.writing <- struct{}{}:
		return func() { <-s.writing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each calls take for every row; take scans it, and may stop by returning
// false.
func each(ctx context.Context, db querier, query dialect.Query, take func(*sql.Rows) (more bool, err error)) error {
	rows, err := db.QueryContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for more := true; more && rows.Next(); {
		if more, err = take(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// all scans every row with the same destinations, and then calls took.
func all(ctx context.Context, db querier, query dialect.Query, took func(), destinations ...any) error {
	return each(ctx, db, query, func(rows *sql.Rows) (bool, error) {
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		took()
		return true, nil
	})
}

// answer carries out the steps. take reads the answer, and says what the first
// column of its rows was.
func (s *Store) answer(ctx context.Context, steps dialect.Steps, take func(querier, dialect.Query) (first []int64, err error)) error {
	if len(steps.Do) == 0 && steps.After == nil {
		_, err := take(s.db, steps.Ask)
		return err
	}
	return s.inTx(ctx, steps.Do, func(tx *sql.Tx) error {
		first, err := take(tx, steps.Ask)
		if err != nil {
			return err
		}
		if steps.After != nil && len(first) > 0 {
			if err := execAll(ctx, tx, steps.After(first)); err != nil {
				return err
			}
		}
		if steps.Also.SQL != "" {
			_, err = take(tx, steps.Also)
		}
		return err
	})
}

func execAll(ctx context.Context, db querier, queries []dialect.Query) error {
	for _, query := range queries {
		if _, err := exec(ctx, db, query); err != nil {
			return err
		}
	}
	return nil
}

// execAlone runs a statement as a transaction, at the level of all others.
func (s *Store) execAlone(ctx context.Context, query dialect.Query) (affected int, err error) {
	err = s.inTx(ctx, nil, func(tx *sql.Tx) error {
		affected, err = exec(ctx, tx, query)
		return err
	})
	return affected, err
}

func exec(ctx context.Context, db querier, query dialect.Query) (affected int, err error) {
	result, err := db.ExecContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return 0, err
	}
	count, err := result.RowsAffected()
	return int(count), err
}

func (s *Store) queryRow(ctx context.Context, query dialect.Query, destinations ...any) error {
	return s.db.QueryRowContext(ctx, query.SQL, query.Args...).Scan(destinations...)
}

// inTx runs work in a transaction that has begun as the dialect wants it.
func (s *Store) inTx(ctx context.Context, begin []dialect.Query, work func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, s.isolation())
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, query := range begin {
		if _, err := tx.ExecContext(ctx, query.SQL, query.Args...); err != nil {
			return err
		}
	}
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// isolation is READ COMMITTED where there is a choice, whatever is set for the
// session.
func (s *Store) isolation() *sql.TxOptions {
	if _, session := s.dialect.(dialect.SessionIsolated); session || s.dialect.OneWriter() {
		return nil
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}
