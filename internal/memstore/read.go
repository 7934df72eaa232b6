package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Read implements [storage.LaneStore]. It reads the positions in the given order, each to its end,
// and stops before a row that would exceed the byte limit.
func (s *Store) Read(ctx context.Context, request storage.ReadRequest) (page storage.Page, err error) {
	var seen int
	err = s.do(ctx, OpRead, func() error {
		page = s.db.read(request)
		page.LateAfter = s.db.lateAfter(s.seen)
		page.SafeID, page.LastID, page.Epoch = s.db.safeID(), s.db.lastID, s.db.epoch()
		seen = len(s.db.appeared)
		return nil
	})
	if err != nil {
		return storage.Page{}, err
	}
	s.seen = seen
	return page, nil
}

// lateAfter skips the given number of commits, and returns an id below all rows of the later
// commits. It returns -1 if there are no later commits.
func (db *DB) lateAfter(seen int) int64 {
	if seen == len(db.appeared) {
		return -1
	}
	return slices.Min(db.appeared[seen:]) - 1
}

func (db *DB) read(request storage.ReadRequest) (page storage.Page) {
	room := room{rows: request.Limit, bytes: request.MaxBytes}
	for r := range db.pending(request.Positions, request.Except) {
		if !room.take(r) {
			page.More = true
			break
		}
		page.Rows = append(page.Rows, r.read(db.now()))
	}
	page.More = page.More || room.rows <= 0
	return page
}

// pending iterates over the pending rows at the positions. It leaves out a row that names
// no sinks and whose topic is in the list `except`.
func (db *DB) pending(positions []storage.Position, except []string) func(yield func(*record) bool) {
	return func(yield func(*record) bool) {
		for _, p := range positions {
			start, _ := db.find(p.Lane, p.After+1)
			for _, r := range db.hot[p.Lane][start:] {
				if p.Until != 0 && r.row.ID > p.Until {
					break
				}
				wanted := p.Key == "" || p.Key == r.row.Message.Key
				if wanted && (r.row.Sinks != "" || !slices.Contains(except, r.row.Message.Topic)) && !yield(r) {
					return
				}
			}
		}
	}
}

// room is the number of rows and bytes that a read may still return.
type room struct {
	rows, bytes int
	started     bool
}

// take reports whether there is room for the row, and counts the row if there is. The first row
// may exceed the byte limit.
func (left *room) take(r *record) bool {
	size := len(r.row.Message.Payload)
	if left.rows <= 0 || left.started && size > left.bytes {
		return false
	}
	left.rows--
	left.bytes -= size
	left.started = true
	return true
}

// read returns the row in the form in which a read of pending rows returns it at this time.
func (r *record) read(now time.Time) storage.Row {
	row := r.row
	row.Later = row.Message.AvailableAt.After(now)
	return row
}

// Scan implements [storage.LaneStore]. It returns rows that existed when Scan was called. It reads
// the positions in the given order, each to its end.
func (s *Store) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) (rows []storage.Row, left []storage.Position, err error) {
	var met []storage.Row
	err = s.do(ctx, OpScan, func() error {
		for i, p := range positions {
			for r := range s.db.pending(positions[i:i+1], except) {
				if len(met) == storage.ScanTogether {
					p.After = met[len(met)-1].ID
					if met[len(met)-1].Lane != p.Lane {
						p.After = positions[i].After
					}
					left = append([]storage.Position{p}, positions[i+1:]...)
					return nil
				}
				met = append(met, r.read(s.db.now()))
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	for _, row := range met {
		m := &row.Message
		if keep(storage.Candidate{ID: row.ID, Lane: row.Lane, Topic: m.Topic, Key: m.Key, Sinks: row.Sinks, Bytes: len(m.Payload)}) {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows, left, nil
}

// BlockedKeys implements [storage.LaneStore].
func (s *Store) BlockedKeys(ctx context.Context, lanes []int, limit int) (keys []storage.BlockedKey, err error) {
	err = s.do(ctx, OpBlockedKeys, func() error {
		for _, retries := range s.db.held.byKey {
			for _, r := range retries {
				if len(keys) < limit && slices.Contains(lanes, r.row.Lane) {
					keys = append(keys, r.heldKey())
				}
			}
			if len(keys) >= limit {
				break
			}
		}
		slices.SortFunc(keys, func(a, b storage.BlockedKey) int { return cmp.Compare(a.ID, b.ID) })
		return nil
	})
	return keys, err
}

// BlockedAmong implements [storage.LaneStore].
func (s *Store) BlockedAmong(ctx context.Context, among []storage.LaneKey) (keys []storage.BlockedKey, err error) {
	err = s.do(ctx, OpBlockedKeys, func() error {
		for _, asked := range among {
			var found []storage.BlockedKey
			for _, r := range s.db.held.byKey[laneKey{asked.Lane, asked.Key}] {
				found = append(found, r.heldKey())
			}
			slices.SortFunc(found, func(a, b storage.BlockedKey) int {
				return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Sinks, b.Sinks), cmp.Compare(a.ID, b.ID))
			})
			keys = append(keys, slices.CompactFunc(found, func(a, b storage.BlockedKey) bool {
				return a.Topic == b.Topic && a.Sinks == b.Sinks
			})...)
		}
		return nil
	})
	return keys, err
}

// Remaining implements [storage.Store].
func (s *Store) Remaining(ctx context.Context, limit int, each func(*storage.Row) (more bool)) error {
	var due []storage.Row
	err := s.do(ctx, OpRemaining, func() error {
		now := s.db.now()
		add := func(r *record, held bool) {
			m := &r.row.Message
			due = append(due, storage.Row{ID: r.row.ID, Lane: r.row.Lane, Sinks: r.row.Sinks, Deferred: held, Message: outbox.Message{ID: m.ID, Topic: m.Topic, Key: m.Key}})
		}
		for _, r := range s.db.held.byTime {
			if r.due(now) {
				add(r, true)
			}
		}
		for _, r := range s.db.hotRows(func(r *record) bool { return r.due(now) && !r.claimedUntil.After(now) }) {
			add(r, false)
		}
		return nil
	})
	if limit > 0 {
		due = due[:min(len(due), limit)]
	}
	for i := range due {
		if !each(&due[i]) {
			break
		}
	}
	return err
}

func byID(a, b *record) int {
	return cmp.Or(cmp.Compare(a.row.ID, b.row.ID), cmp.Compare(a.row.Message.ID, b.row.Message.ID), cmp.Compare(a.row.Sinks, b.row.Sinks))
}

// Due implements [storage.LaneStore].
func (s *Store) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) (rows []storage.Row, next storage.DueCursor, err error) {
	next = after
	err = s.do(ctx, OpDue, func() error {
		from, _ := slices.BinarySearchFunc(s.db.held.byTime, after, func(r *record, after storage.DueCursor) int {
			if r.follows(after) {
				return 1
			}
			return -1
		})
		room := room{rows: limit, bytes: maxBytes}
		for _, r := range s.db.held.byTime[from:] {
			if !r.due(s.db.now()) {
				break
			}
			if !slices.Contains(lanes, r.row.Lane) {
				continue
			}
			if !room.take(r) {
				break
			}
			rows = append(rows, r.readHeld())
			next = storage.DueCursor{At: r.row.Message.AvailableAt, ID: r.row.ID}
		}
		return nil
	})
	if err != nil {
		return nil, after, err
	}
	return rows, next, nil
}

// due reports whether the row may be delivered now: it isn't parked, and its AvailableAt has passed.
func (r *record) due(now time.Time) bool {
	return r.state != storage.StateError && !r.row.Message.AvailableAt.After(now)
}

func (r *record) follows(cursor storage.DueCursor) bool {
	at := r.row.Message.AvailableAt.Compare(cursor.At)
	return at > 0 || at == 0 && r.row.ID > cursor.ID
}

func byTime(a, b *record) int {
	return cmp.Or(a.row.Message.AvailableAt.Compare(b.row.Message.AvailableAt), byID(a, b))
}

func (r *record) readHeld() storage.Row {
	row := r.row
	row.Deferred = true
	row.Retrying = r.state == storage.StateRetry
	return row
}
