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

// trialPatience is how long the trial may take. It waits for nobody, unless the
// server can't skip.
const trialPatience = 2 * time.Second

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

// skips makes the trial, if there is one. Where it can't be made it takes success
// for granted: as the tables are missing, or this user may not lock their rows,
// who can't relay, but may ask for the status; or as another holds the row.
func (s *Store) skips(ctx context.Context, trial *dialect.Trial) (skips bool, err error) {
	if trial == nil {
		return true, nil
	}
	if s.db.Stats().MaxOpenConnections == 1 {
		return false, errors.New("the pool allows one connection, and a relay needs two at least (see SetMaxOpenConns)")
	}
	within, cancel := context.WithTimeout(ctx, trialPatience)
	defer cancel()
	skips = true
	err = s.inTx(within, nil, func(hold *sql.Tx) error {
		var row string
		if err := all(within, hold, trial.Hold, func() {}, &row); err != nil {
			return err
		}
		skips = s.passes(within, trial)
		return nil
	})
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if within.Err() != nil || s.dialect.Missing(err) || s.dialect.Denied(err) || s.dialect.Busy(err) {
		return skips, nil
	}
	return skips, err
}

// With a limit, the other row is asked for again: somebody may hold it for a
// moment, as a relay does that renews its lanes.
const (
	passTries = 10
	passPause = 20 * time.Millisecond
)

// passes says that the second transaction gets nothing but the other row. One
// that waits, or doesn't understand, gets an error.
func (s *Store) passes(ctx context.Context, trial *dialect.Trial) bool {
	for range passTries {
		passed, err := s.pass(ctx, trial)
		if err != nil || len(passed) > 0 || !trial.Limited {
			return err == nil && (len(passed) == 0 || slices.Equal(passed, []string{trial.Want}))
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(passPause):
		}
	}
	return false
}

func (s *Store) pass(ctx context.Context, trial *dialect.Trial) (passed []string, err error) {
	err = s.inTx(ctx, nil, func(tx *sql.Tx) error {
		var row string
		return all(ctx, tx, trial.Pass, func() { passed = append(passed, row) }, &row)
	})
	return passed, err
}
