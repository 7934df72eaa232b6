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

// detect asks what the server is, goes on with the variant of the dialect that fits it,
// and keeps what there is to know. Unordered is as in [dialect.Fit].
func (s *Store) detect(ctx context.Context) (unordered bool, err error) {
	if fitting, differs := s.dialect.(dialect.Fitting); differs {
		server := dialect.Server{Facts: map[string]string{}, Skips: true}
		var name, value string
		facts, trial := fitting.Server(s.table)
		if err := backend.All(ctx, s.db, facts, func() { server.Facts[strings.ToLower(name)] = value }, &name, &value); err != nil {
			return false, fmt.Errorf("ask what the server is: %w", err)
		}
		if trial != nil {
			if server.Skips, err = s.skips(ctx, trial); err != nil {
				return false, fmt.Errorf("try whether the server skips locked rows: %w", err)
			}
		}
		fit, err := fitting.Fit(server)
		if err != nil {
			return false, err
		}
		for _, note := range fit.Notes {
			s.findings = append(s.findings, Finding(note))
		}
		s.dialect, unordered = fit.Dialect, fit.Unordered
	}
	s.backend = backendOf(s.db, s.dialect, s.table, s.options.Reader)
	s.traits = s.backend.Traits()
	s.sizer.walk = s.traits.Walk
	if limited, rowsOnly := s.dialect.(dialect.RowsOnly); rowsOnly {
		s.noLanes = limited.NoLanes()
	}
	return unordered, nil
}

// errTooSlow is what a trial ends with whose time was over before there was an answer.
var errTooSlow = fmt.Errorf("it took longer than %v, %d times, and so nothing is known: try again when the server has less to do", trialPatience, trialTries)

// skips makes the trial, if anything is claimed. A time-out says nothing, so it is made
// again.
func (s *Store) skips(ctx context.Context, trial *dialect.Trial) (skips bool, err error) {
	if s.options.Operator {
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

// tryToSkip is one trial. The second transaction is to get nothing but the other row, or
// none, as somebody may hold that, too; one that waits, or doesn't understand, gets an
// error. Where it can't be made it takes success for granted: as the tables are missing,
// or this user may not lock their rows, who can't relay, but may ask for the status; or
// as another holds the row.
func (s *Store) tryToSkip(ctx context.Context, trial *dialect.Trial) (skips bool, err error) {
	err = s.inTrial(ctx, trial, func(hold *sql.Tx) error {
		var row string
		if err := backend.All(ctx, hold, trial.Hold, func() {}, &row); err != nil {
			return err
		}
		var passed []string
		err := s.inTrial(ctx, trial, func(pass *sql.Tx) error {
			return backend.All(ctx, pass, trial.Pass, func() { passed = append(passed, row) }, &row)
		})
		skips = err == nil && (len(passed) == 0 || slices.Equal(passed, []string{trial.Want}))
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
