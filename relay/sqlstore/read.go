package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Reading. Read returns a page: the pending rows at the requested positions (ranges of ids in lanes), in the order of ids and up to the
// page's limits. A page also says above which ids rows may still appear; see [frontier]. Scan reads ranges of ids again, and returns
// the rows that the caller selects. Due returns due rows of the held table. BlockedKeys returns the blocked keys of some lanes, and
// BlockedAmong returns the given keys that are blocked.

// Read implements [storage.LaneStore]. It stops after the row at which the total size of the payloads reaches MaxBytes.
func (s *Store) Read(ctx context.Context, request storage.ReadRequest) (page storage.Page, err error) {
	if err := s.notMade(); err != nil {
		return page, err
	}
	page, err = try(ctx, s, "read table", func() (storage.Page, error) {
		page, err := s.page(ctx, request)
		// Query the last id if a position begins above the page's last id: either another relay has read up to that position, or the id
		// sequence was reset. The frontier openTx knows only the ids of rows that this store has read. So with this frontier, also query
		// the last id if all positions were read to their ends and one of them ends above the page's last id.
		unknown := s.capabilities.Frontier == backend.OpenTransactions && !page.More
		if err == nil && slices.ContainsFunc(request.Positions, func(p storage.Position) bool {
			return p.After > page.LastID || unknown && p.Until > page.LastID
		}) {
			var last int64
			if last, err = s.lastID(ctx); err == nil {
				s.frontier.learn(last)
				page.LastID = max(page.LastID, last)
			}
		}
		return page, err
	})
	if err != nil {
		s.sizer.failed()
		s.frontier.failed()
		return page, err
	}
	if s.readFrom != "" && s.readFrom != page.Epoch { // another server has answered, and the pool may still have connections to the previous one
		dialect.Redial(ctx, s.db)
	}
	s.readFrom = page.Epoch
	if pool := s.db.Stats(); page.Warning == "" && !s.pool.told && pool.Idle > 0 && pool.MaxIdleClosed-s.pool.before >= wasteful {
		s.pool.told = true
		page.Warning = fmt.Sprintf("the pool has closed %d connections because they were idle, and reopens them; keep them with db.SetMaxIdleConns(%d)", pool.MaxIdleClosed-s.pool.before, idleConnections)
	}
	return page, nil
}

// poolWatch warns once if the pool keeps closing connections that are soon needed again. By default database/sql keeps only two idle
// connections, so it repeatedly closes and reopens a relay's other connections. Connecting is the most expensive operation of a
// relay. A pool without any idle connection is probably from pgx's stdlib.OpenDBFromPool, and its pgxpool keeps the idle connections.
type poolWatch struct {
	before int64 // the number of idle connections that the pool had closed before the store was opened
	told   bool  // whether the warning was given
}

const (
	wasteful        = 100 // the warning is given after the pool has closed this number of idle connections
	idleConnections = 8   // the number that the warning recommends; see Open
)

// page reads a page. If it fails, the frontier is unchanged, and the next page reports the same late rows.
func (s *Store) page(ctx context.Context, request storage.ReadRequest) (page storage.Page, err error) {
	if err := s.frontier.prepare(ctx); err != nil {
		return page, err
	}
	began := s.frontier.before()

	// A read without positions returns only its [backend.FirstLine]. This is enough if the previous read found no row up to the end
	// of the table and no row has appeared since, as in most reads of an idle relay. In a measurement on PostgreSQL 15, a read without
	// positions took 0.15 ms, and an empty read of 64 lanes took 0.5 ms.
	firstLineSuffices := began.current && len(s.endOfLane) > 0
	for _, p := range request.Positions {
		end, known := s.endOfLane[p.Lane]
		firstLineSuffices = firstLineSuffices && known && p.After >= end
	}
	if firstLineSuffices || len(request.Positions) == 0 {
		first, err := s.backend.Read(ctx, backend.Read{}, nil)
		if err != nil {
			return page, err
		}
		if nothingNew := began.current && s.frontier.idle(first); nothingNew || len(request.Positions) == 0 {
			if !nothingNew {
				s.endOfLane = nil // rows may have appeared, and only this page's LateAfter reports them
			}
			err = s.frontier.guarantee(ctx, first, began, &page)
			return page, err
		}
	}
	s.endOfLane = nil

	r := reading{
		limit: request.Limit, maxBytes: request.MaxBytes, expected: min(request.Limit, s.sizer.pageSize), positions: bounded(request.Positions),
		byID: s.capabilities.Walk == backend.WalkByID && request.Positions[0].Key == "",
	}
	read := s.sizer.ask(&r, !began.current)
	read.Except = request.Except
	first, err := s.backend.Read(ctx, read, r.take)
	if err != nil {
		return page, err
	}
	r.leftOut = r.leftOut || r.full() || len(r.rows) >= r.asked // the statement may have left out rows
	s.sizer.learn(&r)
	if !first.Told { // some databases return the FirstLine only together with a message
		if first, err = s.backend.Read(ctx, backend.Read{}, nil); err != nil {
			return page, err
		}
	}
	page = storage.Page{Rows: r.rows, More: r.leftOut}
	if n := len(r.rows); n > 0 && r.byID {
		page.Through = r.rows[n-1].ID
	}
	if err := s.frontier.guarantee(ctx, first, began, &page); err != nil {
		return storage.Page{}, err
	}
	if len(page.Rows) == 0 && !page.More && len(request.Except) == 0 {
		s.endOfLane = map[int]int64{}
		for _, p := range r.positions {
			if p.Key == "" && p.Until == math.MaxInt64 {
				s.endOfLane[p.Lane] = p.After
			}
		}
	}
	return page, nil
}

// bounded returns a copy of the positions, in which an Until of 0 is replaced by the highest possible id.
func bounded(positions []storage.Position) []storage.Position {
	positions = slices.Clone(positions)
	for i := range positions {
		if positions[i].Until == 0 {
			positions[i].Until = math.MaxInt64
		}
	}
	return positions
}

// reading collects the rows of a page, up to the page's limits.
type reading struct {
	rows            []storage.Row
	limit, maxBytes int
	bytes           int
	expected        int  // the estimated number of rows
	share           int  // maximum number of rows of one position; 0 means no limit
	asked           int  // the row limit of the statement
	leftOut         bool // whether rows may have been left out because of the page's limits or a position's share
	byID            bool // whether the rows of all lanes together are ordered by id

	positions []storage.Position
	at        int   // the index of the last row's position
	after     int64 // the id of the last row
	count     int   // the number of rows that were read at this position
}

func (r *reading) full() bool { return len(r.rows) >= r.limit || r.bytes >= r.maxBytes }

var errOrder = errors.New("the database returned the rows out of order; please report this with the database's version")

// take adds the next row to the page. It checks the order of the rows, because the order depends on the statement's plan, and a row that
// arrived out of order would be lost.
func (r *reading) take(row storage.Row) (more bool, err error) {
	follows := func(p storage.Position) bool {
		return p.Lane == row.Lane && row.ID > max(p.After, r.after) && row.ID <= p.Until
	}
	for !r.byID && r.at < len(r.positions) && !follows(r.positions[r.at]) {
		r.at, r.after, r.count = r.at+1, 0, 0
	}
	if r.at == len(r.positions) || r.byID && !slices.ContainsFunc(r.positions, follows) {
		return false, errOrder
	}
	if r.full() {
		return false, nil
	}
	r.after, r.count = row.ID, r.count+1
	r.leftOut = r.leftOut || r.count == r.share
	if r.rows == nil {
		r.rows = make([]storage.Row, 0, r.expected)
	}
	r.rows = append(r.rows, row)
	r.bytes += len(row.Message.Payload)
	return !r.full(), nil
}

const (
	candidateLimit = storage.ScanTogether // maximum number of rows of one statement
	pickLimit      = 500
	scanRounded    = 50 * time.Millisecond // time limits of scans are multiples of this, so that few different statements exist: the limit is part of a statement's text
)

// Scan implements [storage.LaneStore]. One statement reads the candidates, and other statements
// fetch the candidates for which the function `keep` returns true.
func (s *Store) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) (rows []storage.Row, left []storage.Position, err error) {
	if len(positions) == 0 {
		return nil, nil, nil
	}
	positions = bounded(positions)
	byID := s.capabilities.Walk == backend.WalkByID
	met, err := try(ctx, s, "scan table", func() (met []storage.Candidate, err error) {
		// This reading only checks the order of the rows. It is never full, because candidates have no payload.
		order := reading{limit: candidateLimit + 1, maxBytes: 1, positions: positions, byID: byID}
		query := s.backend.Candidates(positions, except, candidateLimit)
		if deadline, ends := ctx.Deadline(); ends && s.capabilities.WithTimeLimit != nil {
			query.SQL = s.capabilities.WithTimeLimit(query.SQL, max(time.Until(deadline).Round(scanRounded), scanRounded))
		}
		err = backend.ReadCandidates(ctx, s.db, query, func(c storage.Candidate) (bool, error) {
			met = append(met, c)
			return order.take(storage.Row{ID: c.ID, Lane: c.Lane})
		})
		return met, err
	})
	if err != nil {
		return nil, nil, err
	}
	if len(met) == candidateLimit { // return the positions that remain after the last row
		last := met[len(met)-1]
		found := false
		for _, p := range positions {
			switch {
			case byID:
				p.After = max(p.After, last.ID)
			case !found && p.Lane == last.Lane && last.ID > p.After && last.ID <= p.Until:
				p.After, found = last.ID, true
			case !found:
				continue // this position was read to its end
			}
			if p.After < p.Until {
				left = append(left, p)
			}
		}
	}
	var wanted []storage.RowID
	for _, c := range met {
		if keep(c) {
			wanted = append(wanted, storage.RowID{Lane: c.Lane, ID: c.ID})
		}
	}
	if len(wanted) == 0 {
		return nil, left, nil
	}
	if rows, err = s.pick(ctx, wanted, false); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows, left, nil
}

// pick fetches rows of the table outbox or, if held is true, of the held table. One statement fetches at most pickLimit rows.
func (s *Store) pick(ctx context.Context, wanted []storage.RowID, held bool) (rows []storage.Row, err error) {
	for part := range slices.Chunk(wanted, pickLimit) {
		picked, err := try(ctx, s, "scan table", func() ([]storage.Row, error) {
			return backend.ReadRows(ctx, s.db, s.backend.Pick(part, held))
		})
		if err != nil {
			return nil, err
		}
		for i := range picked {
			picked[i].Deferred = held
		}
		rows = append(rows, picked...)
	}
	return rows, nil
}

// lastID queries the highest id that was assigned.
func (s *Store) lastID(ctx context.Context) (last int64, err error) {
	if last, err = backend.LastID(ctx, s.db, s.capabilities.Queries.LastID); err != nil {
		err = fmt.Errorf("read the last id of table %s: %w", s.table, err)
	}
	return last, err
}

// FoundLate implements [storage.LaneStore].
func (s *Store) FoundLate() {
	if s.notMade() != nil {
		return
	}
	s.frontier.reset()
	s.endOfLane = nil
}

// BlockedKeys implements [storage.LaneStore].
func (s *Store) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
	return try(ctx, s, "read the blocked keys of table", func() ([]storage.BlockedKey, error) {
		return backend.ReadBlockedKeys(ctx, s.db, s.backend.BlockedKeys(lanes, limit))
	})
}

// BlockedAmong implements [storage.LaneStore].
func (s *Store) BlockedAmong(ctx context.Context, among []storage.LaneKey) ([]storage.BlockedKey, error) {
	if len(among) == 0 {
		return nil, nil
	}
	return try(ctx, s, "look for blocked keys of table", func() ([]storage.BlockedKey, error) {
		return backend.ReadBlockedKeys(ctx, s.db, s.backend.BlockedAmong(among))
	})
}

// Remaining implements [storage.Store].
func (s *Store) Remaining(ctx context.Context, limit int, each func(*storage.Row) (more bool)) error {
	if limit <= 0 {
		limit = math.MaxInt
	}
	_, err := try(ctx, s, "look for due rows of table", func() (struct{}, error) {
		return struct{}{}, backend.ReadRemaining(ctx, s.db, s.backend.Remaining(limit), each)
	})
	return err
}

// Due implements [storage.LaneStore]. It stops after the row at which the total size of the payloads reaches maxBytes.
func (s *Store) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) (rows []storage.Row, next storage.DueCursor, err error) {
	rows, err = try(ctx, s, "read the due rows of table", func() (due []storage.Row, err error) {
		bytes := 0
		err = backend.ScanRows(ctx, s.db, s.backend.Due(lanes, after, limit, maxBytes), nil, nil, func(c *backend.Columns) (bool, error) {
			row, err := c.Row()
			row.Deferred = true
			due, bytes = append(due, row), bytes+len(row.Message.Payload)
			return bytes < maxBytes, err
		})
		return due, err
	})
	if err != nil || len(rows) == 0 {
		return nil, after, err
	}
	last := rows[len(rows)-1]
	return rows, storage.DueCursor{At: last.Message.AvailableAt, ID: last.ID}, nil
}

// pageSizer determines the limits of each page's statement from the sizes of earlier
// pages.
//
// If a page has many positions, each position may fill only a share of the page, so that the page's
// rows were written at about the same time, whatever their lanes.
type pageSizer struct {
	rowSize  int // average size of the payloads in the last page, in bytes
	pageSize int // number of rows of the last page

	// shareFactor determines how many rows of one position a page may have: shareFactor times the page's limit of
	// rows, divided by the number of positions.
	shareFactor int
}

const (
	minRowSize    = 256     // minimum of the assumed size of a payload, in bytes
	largeRowSize  = 1 << 20 // assumed size of a payload after a failed read, since large rows may have made the read too slow
	manyPositions = 8       // minimum number of positions for which a page is divided into shares
	minShare      = 16      // minimum share of a position, in rows
)

// ask returns the request for a page. If the argument `number` is true, the page is read in a transaction with a number.
//
// It estimates the size of a full page from the average payload of the last page. If the size is far below
// maxBytes, the request sets no limit of bytes, and [reading.take] drops rows beyond maxBytes. Otherwise
// the request limits the page to about twice the number of rows that would fit, because some databases
// can't count bytes.
func (p *pageSizer) ask(into *reading, number bool) backend.Read {
	read := backend.Read{Positions: into.positions, Limit: into.limit, MaxBytes: into.maxBytes, Number: number}
	if read.Limit*max(p.rowSize, minRowSize) < read.MaxBytes/4 {
		read.MaxBytes = 0
	} else if p.rowSize > 0 {
		read.Limit = min(read.Limit, 2*read.MaxBytes/p.rowSize+1)
	}
	into.asked = read.Limit
	if all := len(into.positions); all >= manyPositions && into.positions[0].Key == "" && !into.byID {
		read.Share = min(into.asked, max(minShare, into.asked*max(1, p.shareFactor)/all))
	}
	into.share = read.Share
	return read
}

// learn adapts the shares to the last page. If the page was less than half full although rows were left
// out, some lanes are busier than others, and the shares are doubled. After a full page, the shares are halved.
func (p *pageSizer) learn(r *reading) {
	p.pageSize = len(r.rows)
	if len(r.rows) > 0 {
		p.rowSize = r.bytes / len(r.rows)
	}
	switch {
	case r.full():
		p.shareFactor = max(1, p.shareFactor/2)
	case r.leftOut && len(r.rows) < min(r.limit, r.asked)/2:
		p.shareFactor = min(max(1, p.shareFactor)*2, storage.Lanes)
	}
}

func (p *pageSizer) failed() { p.rowSize = max(p.rowSize, largeRowSize) }
