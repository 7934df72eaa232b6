package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

const (
	candidateLimit = relay.ScanTogether // of one statement
	pickLimit      = 500
)

// Scan implements [relay.LaneStore]. One statement walks over the rows, others
// fetch those that are wanted.
func (s *Store) Scan(ctx context.Context, positions []relay.Position, except []string, keep func(relay.Candidate) bool) (rows []relay.Row, left []relay.Position, err error) {
	if len(positions) == 0 {
		return nil, nil, nil
	}
	runs := s.runs(positions)
	met, err := s.candidates(ctx, runs[0], except)
	if err != nil {
		return nil, nil, err
	}
	if len(met) == candidateLimit {
		left = s.goOn(runs[0], met[len(met)-1])
	}
	for _, run := range runs[1:] {
		left = append(left, run...)
	}
	wanted := slices.DeleteFunc(met, func(c relay.Candidate) bool { return !keep(c) })
	for part := range slices.Chunk(wanted, pickLimit) {
		picked, err := s.pick(ctx, placesOf(part), false)
		if err != nil {
			return nil, nil, err
		}
		rows = append(rows, picked...)
	}
	slices.SortFunc(rows, func(a, b relay.Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows, left, nil
}

// goOn returns what is left of the positions after the last row.
func (s *Store) goOn(positions []relay.Position, last relay.Candidate) []relay.Position {
	if s.habits.walksIDs(positions) {
		return goOnByID(positions, last.ID)
	}
	at := slices.IndexFunc(positions, func(p relay.Position) bool {
		return within(p, 0, relay.Row{ID: last.ID, Lane: last.Lane})
	})
	rest := slices.Clone(positions[at:])
	rest[0].After = last.ID
	return rest
}

func goOnByID(positions []relay.Position, last int64) (rest []relay.Position) {
	for _, p := range positions {
		if p.After = max(p.After, last); p.After < until(p) {
			rest = append(rest, p)
		}
	}
	return rest
}

func (s *Store) candidates(ctx context.Context, positions []relay.Position, except []string) (met []relay.Candidate, err error) {
	err = s.try(ctx, "scan table", func() error {
		met = nil
		order := reading{limit: candidateLimit + 1, maxBytes: 1, positions: positions, byID: s.habits.walksIDs(positions)}
		return s.backend.Candidates(ctx, bounded(positions), except, candidateLimit, func(c relay.Candidate) (bool, error) {
			met = append(met, c)
			return order.take(relay.Row{ID: c.ID, Lane: c.Lane})
		})
	})
	return met, err
}

func placesOf(wanted []relay.Candidate) []relay.RowID {
	return backend.Column(wanted, func(c *relay.Candidate) relay.RowID { return relay.RowID{Lane: c.Lane, ID: c.ID} })
}

func (s *Store) pick(ctx context.Context, wanted []relay.RowID, held bool) (rows []relay.Row, err error) {
	err = s.try(ctx, "scan table", func() error {
		rows, err = s.backend.Pick(ctx, wanted, held)
		return err
	})
	return rows, err
}
