package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

const (
	candidateLimit = relay.ScanTogether // of one statement
	pickLimit      = 500
)

// Scan implements [relay.LaneStore]. It reads in several statements, which hold
// nothing open between them. The rows come in the order of ids.
func (s *Store) Scan(ctx context.Context, positions []relay.Position, keep func(relay.Candidate) bool) ([]relay.Row, error) {
	var wanted []relay.Candidate
	for _, run := range s.runs(positions) {
		found, err := s.scanRun(ctx, run, keep)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, found...)
	}
	var rows []relay.Row
	for part := range slices.Chunk(wanted, pickLimit) {
		picked, err := s.pickHot(ctx, part)
		if err != nil {
			return nil, err
		}
		rows = append(rows, picked...)
	}
	slices.SortFunc(rows, func(a, b relay.Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows, nil
}

func (s *Store) scanRun(ctx context.Context, positions []relay.Position, keep func(relay.Candidate) bool) (wanted []relay.Candidate, err error) {
	for len(positions) > 0 {
		met, err := s.candidates(ctx, positions)
		if err != nil {
			return nil, err
		}
		for _, candidate := range met {
			if keep(candidate) {
				wanted = append(wanted, candidate)
			}
		}
		if len(met) < candidateLimit {
			break
		}
		positions = s.goOn(positions, met[len(met)-1])
	}
	return wanted, nil
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

func (s *Store) candidates(ctx context.Context, positions []relay.Position) (met []relay.Candidate, err error) {
	query := s.dialect.Candidates(s.table, toDialect(positions), candidateLimit)
	err = s.try(ctx, "scan table", func() error {
		met = nil
		order := reading{limit: candidateLimit + 1, maxBytes: 1, positions: positions, byID: s.habits.walksIDs(positions)}
		var c relay.Candidate
		return each(ctx, s.db, query, func(rows *sql.Rows) (bool, error) {
			if err := rows.Scan(&c.ID, &c.Lane, &c.Topic, (*text)(&c.Key)); err != nil {
				return false, err
			}
			met = append(met, c)
			return order.take(relay.Row{ID: c.ID, Lane: c.Lane})
		})
	})
	return met, err
}

func (s *Store) pickHot(ctx context.Context, wanted []relay.Candidate) ([]relay.Row, error) {
	lanes, ids := placesOf(wanted)
	return s.pick(ctx, s.dialect.Pick(s.table, lanes, ids), false)
}

func placesOf(wanted []relay.Candidate) (lanes []int, ids []int64) {
	for _, candidate := range wanted {
		lanes, ids = append(lanes, candidate.Lane), append(ids, candidate.ID)
	}
	return lanes, ids
}

func (s *Store) pick(ctx context.Context, query dialect.Query, held bool) (rows []relay.Row, err error) {
	err = s.try(ctx, "scan table", func() error {
		rows = nil
		scan := newRowScan()
		return each(ctx, s.db, query, func(result *sql.Rows) (bool, error) {
			err := scan.scan(result)
			scan.row.Held = held
			rows = append(rows, scan.row)
			return true, err
		})
	})
	return rows, err
}
