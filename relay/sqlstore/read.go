package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Read implements [relay.LaneStore]. The row that crosses maxBytes is still
// returned.
func (s *Store) Read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	var page relay.Page
	if err := s.observe(ctx); err != nil {
		return page, err
	}
	err := s.try(ctx, "read table", func() (err error) {
		page, err = s.read(ctx, positions, limit, maxBytes)
		return err
	})
	if err != nil {
		s.failed()
	}
	return page, err
}

func (s *Store) failed() {
	s.habits.failed()
	if s.observed != nil {
		s.observed.doubt()
	}
}

func (s *Store) read(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	peeked, empty, err := s.peek(ctx, positions)
	if err != nil || empty {
		return peeked, err
	}
	s.emptied, s.owed = nil, lowestLate(s.owed, peeked.LateAfter)
	page, err := s.pageOf(ctx, positions, limit, maxBytes)
	if err == nil {
		page.LateAfter, s.owed = lowestLate(page.LateAfter, s.owed), -1
	}
	return page, err
}

func (s *Store) pageOf(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	if len(positions) == 0 {
		return s.emptyPage(ctx)
	}
	return s.readPage(ctx, positions, limit, maxBytes)
}

// emptyPage is what a page tells beside its rows.
func (s *Store) emptyPage(ctx context.Context) (page relay.Page, err error) {
	began := s.beginRead()
	first, err := s.backend.Read(ctx, backend.Read{}, nil)
	if err != nil {
		return page, err
	}
	err = s.promise(ctx, first, began, &page)
	page.Warning = s.warning()
	return page, err
}

func (s *Store) readPage(ctx context.Context, positions []relay.Position, limit, maxBytes int) (relay.Page, error) {
	began := s.beginRead()
	reading, first, err := s.readRuns(ctx, positions, limit, maxBytes)
	if err == nil && len(reading.rows) == 0 && reading.leftOut && s.habits.paces != nil {
		reading, first, err = s.readRuns(ctx, positions, limit, maxBytes) // its lanes have none any more
	}
	if err != nil {
		return relay.Page{}, err
	}
	s.gave(reading.rows)
	page := relay.Page{Rows: reading.rows, More: reading.full() || reading.leftOut, Through: reading.through, Warning: s.warning()}
	if err := s.promise(ctx, first, began, &page); err != nil {
		return relay.Page{}, err
	}
	s.emptied = emptiedBy(positions, &reading)
	return page, nil
}

// readRuns makes one page.
func (s *Store) readRuns(ctx context.Context, positions []relay.Position, limit, maxBytes int) (reading reading, first backend.FirstLine, err error) {
	reading.limit, reading.maxBytes, reading.visited = limit, maxBytes, len(positions)
	reading.expected = min(limit, s.habits.pageSize)
	runs := s.runs(positions)
	for i, run := range runs {
		// What a later statement sees beyond the first one's snapshot is told
		// as late by the next read.
		line, err := s.readRun(ctx, run, &reading, i == 0)
		if err != nil {
			return reading, first, err
		}
		if !first.Told {
			first = line
		}
		if reading.full() {
			break
		}
	}
	s.habits.learn(&reading)
	if n := len(reading.rows); n > 0 && len(runs) == 1 && reading.byID {
		reading.through = reading.rows[n-1].ID
	}
	if !first.Told { // each row would have told it, and there is none
		first, err = s.backend.Read(ctx, backend.Read{}, nil)
	}
	return reading, first, err
}

func (s *Store) beginRead() token {
	if s.observed != nil {
		s.observed.begins(time.Now())
	}
	return s.horizon.before()
}

// promise has a page say what the horizon concludes from the first line of a read.
// Where there is one writer at a time there is no snapshot: ids are committed in
// their order.
func (s *Store) promise(ctx context.Context, first backend.FirstLine, began token, page *relay.Page) error {
	page.Epoch, page.Given = first.Server, first.LastID
	switch {
	case s.observed != nil:
		afterwards, err := s.lookAgain(ctx)
		if err != nil {
			return err
		}
		page.LateAfter, page.Horizon = s.observed.page(first.Server, afterwards)
		page.Given = s.observed.given
	case first.Snapshot == "":
		page.LateAfter, page.Horizon = -1, first.LastID
	default:
		snapshot, err := parseSnapshot(first.Snapshot)
		if err != nil {
			return err
		}
		page.LateAfter, page.Horizon = s.horizon.read(first.Server, snapshot, first.LastID)
		s.wrote(first.XID, began)
	}
	return nil
}

// LastID implements [relay.LaneStore].
func (s *Store) LastID(ctx context.Context) (last int64, err error) {
	err = s.try(ctx, "read table", func() error { last, err = s.given(ctx); return err })
	if err == nil && s.observed != nil {
		s.observed.learn(last)
	}
	return last, err
}

// Distrust implements [relay.LaneStore].
func (s *Store) Distrust() {
	s.horizon.distrust()
	s.emptied = nil
	if s.observed != nil {
		s.observed.distrust(time.Now())
	}
}

func (s *Store) warning() string {
	if s.observed != nil {
		if warning := s.observed.warned(); warning != "" {
			return warning
		}
	}
	return s.pool.warning(s.db)
}

// gave notes which ids were given out: those of rows that were read.
func (s *Store) gave(rows []relay.Row) {
	if s.observed == nil {
		return
	}
	for _, row := range rows {
		s.observed.learn(row.ID)
	}
}

// readRun reads at positions that can be read by one statement. If ids were
// given out of which no transaction of ours knows, it takes a number itself, so
// that the horizon follows also while nothing is settled.
func (s *Store) readRun(ctx context.Context, positions []relay.Position, into *reading, number bool) (first backend.FirstLine, err error) {
	before := len(into.rows)
	first, err = s.backend.Read(ctx, s.habits.ask(positions, into, number && s.horizon.stale()), into.take)
	into.leftOut = into.leftOut || into.cut() || into.bounded
	if err == nil && s.habits.paces != nil && into.share > 0 {
		s.habits.paces.learn(into.positions, into.rows[before:], into.share, into.cut())
	}
	return first, err
}

// bounded are positions each of which has an end.
func bounded(positions []relay.Position) []relay.Position {
	ended := slices.Clone(positions)
	for i := range ended {
		ended[i].Until = until(ended[i])
	}
	return ended
}

// runs splits the positions where those with a key and those without follow
// each other; where the lanes are read in their order, also where that begins
// anew. There is one run at least.
func (s *Store) runs(positions []relay.Position) [][]relay.Position {
	start := 0
	var found [][]relay.Position
	for i := 1; i < len(positions); i++ {
		before, p := positions[i-1], positions[i]
		if (p.Key == "") != (before.Key == "") || s.habits.paces != nil && p.Lane <= before.Lane {
			found = append(found, positions[start:i])
			start = i
		}
	}
	return append(found, positions[start:])
}
