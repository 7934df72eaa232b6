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
)

const (
	trialTries    = 5 // another relay may hold the other row for a moment
	trialPatience = 2 * time.Second
)

// fit goes on with the variant of the dialect that fits the server, and keeps
// what there is to know of it.
func (s *Store) fit(ctx context.Context) (fit dialect.Fit, err error) {
	fitting, ok := s.dialect.(dialect.Fitting)
	if !ok {
		return dialect.Fit{}, nil
	}
	server := dialect.Server{Facts: map[string]string{}}
	var name, value string
	if err := all(ctx, s.db, fitting.Server(), func() { server.Facts[strings.ToLower(name)] = value }, &name, &value); err != nil {
		return dialect.Fit{}, fmt.Errorf("ask what the server is: %w", err)
	}
	if fit, err = s.fitTo(ctx, server, fitting); err != nil {
		return dialect.Fit{}, err
	}
	s.dialect = fit.Dialect
	for _, note := range fit.Notes {
		s.findings = append(s.findings, Finding(note))
	}
	return fit, nil
}

// fitTo makes the dialect's trial. A variant that is another dialect may want
// one of its own.
func (s *Store) fitTo(ctx context.Context, server dialect.Server, fitting dialect.Fitting) (fit dialect.Fit, err error) {
	if server.Skips, err = s.skips(ctx, fitting.Skipping(s.table)); err != nil {
		return dialect.Fit{}, fmt.Errorf("try whether the server skips locked rows: %w", err)
	}
	if fit, err = fitting.Fit(server); err != nil {
		return dialect.Fit{}, err
	}
	if other, ok := fit.Dialect.(dialect.Fitting); ok && fit.Dialect.Name() != s.dialect.Name() {
		s.dialect = fit.Dialect
		return s.fitTo(ctx, server, other)
	}
	return fit, nil
}

// skips makes the trial, if there is one. Where the tables are missing, or this
// user may not lock their rows, it takes success for granted: such a user can't
// relay, but may ask for the status.
func (s *Store) skips(ctx context.Context, trial *dialect.Trial) (bool, error) {
	if trial == nil {
		return true, nil
	}
	if s.db.Stats().MaxOpenConnections == 1 {
		return false, errors.New("the pool allows one connection, and a relay needs two at least (see SetMaxOpenConns)")
	}
	for range trialTries {
		passed, err := s.tryToSkip(ctx, trial)
		switch {
		case s.dialect.Missing(err), s.dialect.Denied(err):
			return true, nil
		case err != nil && !s.dialect.Busy(err):
			return false, err
		case slices.Equal(passed, []string{trial.Want}):
			return true, nil
		case len(passed) > 0:
			return false, nil
		}
	}
	return false, nil
}

// tryToSkip returns what the second transaction selects. That it waits, or that
// the server doesn't understand, is no error, and not what was wanted.
func (s *Store) tryToSkip(ctx context.Context, trial *dialect.Trial) (passed []string, err error) {
	within, cancel := context.WithTimeout(ctx, trialPatience)
	defer cancel()
	var row string
	err = s.inTx(within, nil, func(hold *sql.Tx) error {
		if err := all(within, hold, trial.Hold, func() {}, &row); err != nil {
			return err
		}
		return s.inTx(within, nil, func(pass *sql.Tx) error {
			err := all(within, pass, trial.Pass, func() { passed = append(passed, row) }, &row)
			if err != nil && ctx.Err() == nil && !s.dialect.Busy(err) {
				passed = []string{"an error"}
				return nil
			}
			return err
		})
	})
	if ctx.Err() == nil && len(passed) > 0 {
		return passed, nil // whether the transactions could be ended is of no interest
	}
	return passed, err
}
