package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// The trial waits for nobody's rows: a server that can't skip says so after the
// second that its transactions may wait for a lock. What takes longer is slow, which
// is no answer.
const (
	trialPatience = 5 * time.Second
	trialTries    = 3
)

// fit goes on with the variant of the dialect that fits the server, and keeps
// what there is to know of it.
func (s *Store) fit(ctx context.Context) (fit dialect.Fit, err error) {
	fitting, ok := s.dialect.(dialect.Fitting)
	if !ok {
		s.use(s.dialect)
		return dialect.Fit{}, nil
	}
	server := dialect.Server{Facts: map[string]string{}}
	var name, value string
	if err := backend.All(ctx, s.db, fitting.Server(), func() { server.Facts[strings.ToLower(name)] = value }, &name, &value); err != nil {
		return dialect.Fit{}, fmt.Errorf("ask what the server is: %w", err)
	}
	if server.Skips, err = s.skips(ctx, fitting.Skipping(s.table)); err != nil {
		return dialect.Fit{}, fmt.Errorf("try whether the server skips locked rows: %w", err)
	}
	if fit, err = fitting.Fit(server); err != nil {
		return dialect.Fit{}, err
	}
	s.use(fit.Dialect)
	for _, note := range fit.Notes {
		s.findings = append(s.findings, Finding(note))
	}
	return fit, nil
}

// errTooSlow is what a trial ends with whose time was over before there was an answer.
var errTooSlow = fmt.Errorf("it took longer than %v, %d times, and so nothing is known: try again when the server has less to do", trialPatience, trialTries)

// skips makes the trial, if there is one, and if anything is claimed. A time-out says
// nothing, so it is made again.
func (s *Store) skips(ctx context.Context, trial *dialect.Trial) (skips bool, err error) {
	if trial == nil || s.operator {
		return true, nil
	}
	if s.db.Stats().MaxOpenConnections == 1 {
		return false, errors.New("the pool allows one connection, and a relay needs two at least (see SetMaxOpenConns)")
	}
	for range trialTries {
		within, cancel := context.WithTimeout(ctx, trialPatience)
		skips, err = s.tryToSkip(within, trial)
		slow := within.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if !slow {
			return skips, err
		}
	}
	return false, errTooSlow
}

// tryToSkip is one trial. Where it can't be made it takes success for granted: as the
// tables are missing, or this user may not lock their rows, who can't relay, but may
// ask for the status; or as another holds the row.
func (s *Store) tryToSkip(ctx context.Context, trial *dialect.Trial) (skips bool, err error) {
	err = s.inTrial(ctx, trial, func(hold *sql.Tx) error {
		var row string
		if err := backend.All(ctx, hold, trial.Hold, func() {}, &row); err != nil {
			return err
		}
		skips = s.passes(ctx, trial)
		return nil
	})
	if s.dialect.Missing(err) || s.dialect.Denied(err) || s.dialect.Busy(err) {
		return true, nil
	}
	return skips, err
}

// inTrial works in a transaction whose wait for locks has a bound, and leaves the
// session as it was.
func (s *Store) inTrial(ctx context.Context, trial *dialect.Trial, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, s.db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(tx *sql.Tx) (err error) {
		if _, err := backend.Exec(ctx, tx, trial.Begin...); err != nil {
			return err
		}
		defer func() {
			for _, query := range trial.End {
				_, endErr := backend.Exec(ctx, tx, query)
				err = errors.Join(err, endErr)
			}
		}()
		return work(tx)
	})
}

// passes says that the second transaction gets nothing but the other row, or none,
// as somebody may hold that, too. One that waits, or doesn't understand, gets an
// error.
func (s *Store) passes(ctx context.Context, trial *dialect.Trial) bool {
	var passed []string
	err := s.inTrial(ctx, trial, func(tx *sql.Tx) error {
		var row string
		return backend.All(ctx, tx, trial.Pass, func() { passed = append(passed, row) }, &row)
	})
	return err == nil && (len(passed) == 0 || slices.Equal(passed, []string{trial.Want}))
}
