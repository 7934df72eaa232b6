package relay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// inTurn carries out the calls of one relay while it holds the history's turn, and reports their effects to the tracer, as memstore
// does. It reads the effects of leases and settlements from the tables, with its own statements. It delays calls, makes them
// fail, and loses their results.
type inTurn struct {
	storage.Store // of the real database
	c             *chaos
	dead          chan struct{}
	stalled       time.Time // until then all calls of the relay wait
}

var errBroke = errors.New("the connection broke")

// do carries out a call. The result of a read of a page is never lost, because the store reports late rows only once.
func (s *inTurn) do(ctx context.Context, op memstore.Op, work func(context.Context) ([]memstore.Change, error)) error {
	s.c.calls.Add(1)
	defer s.c.calls.Done()
	late := s.delay(op)
	if s.disturbed(50) {
		return errBroke
	}
	if err := s.locked(ctx, op, late && op != memstore.OpRead, work); err != nil {
		return err
	}
	switch {
	case isClosed(s.dead):
		return errDead
	case op == memstore.OpRead:
		return nil
	case s.disturbed(40):
		return errBroke
	}
	return ctx.Err()
}

// locked carries out a call whose context may have ended while it was delayed. With the argument late, the call takes effect
// nevertheless, like a request that was on its way to the server.
func (s *inTurn) locked(ctx context.Context, op memstore.Op, late bool, work func(context.Context) ([]memstore.Change, error)) error {
	s.c.turn.Lock()
	defer s.c.turn.Unlock()
	if isClosed(s.dead) {
		return errDead
	}
	if err := ctx.Err(); err != nil && !late {
		return err
	}
	began := time.Now()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	changes, err := work(bounded)
	if err != nil {
		s.c.problem("%s: %v", op, err)
		return err
	}
	s.c.tracer.took(ctx, began, op, changes)
	return nil
}

// disturbed returns true once in n calls, until the failures end.
func (s *inTurn) disturbed(n int) bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return !s.c.calm && s.c.random.IntN(n) == 0
}

// delay delays a call, or all calls of the relay as if its process were suspended. It returns whether a call whose context ends
// meanwhile takes effect. Most suspensions begin with a settlement and last longer than a lease, because a settlement is fenced only
// after a takeover.
func (s *inTurn) delay(op memstore.Op) (late bool) {
	s.c.mu.Lock()
	now, until := time.Now(), s.stalled
	if !s.c.calm {
		switch f := s.c.random.Float64(); {
		case s.c.stalls && op == memstore.OpSettle && s.c.random.IntN(15) == 0:
			s.stalled = now.Add(chaosLease + time.Duration(f*float64(longestDelay-chaosLease)))
			until = s.stalled
		case s.c.stalls && s.c.random.IntN(400) == 0:
			s.stalled = now.Add(time.Duration(f * float64(longestDelay)))
			until = s.stalled
		case s.c.random.IntN(200) == 0:
			until = now.Add(time.Duration(f * float64(longestDelay)))
		case s.c.random.IntN(40) == 0:
			until = now.Add(time.Duration(f * float64(100*time.Millisecond)))
		}
		late = s.c.random.IntN(2) == 0
	}
	s.c.mu.Unlock()
	time.Sleep(time.Until(until))
	return late
}

// unobserved carries out a call that changes nothing in the model.
func (s *inTurn) unobserved(ctx context.Context, op memstore.Op, work func(context.Context) error) error {
	return s.do(ctx, op, func(ctx context.Context) ([]memstore.Change, error) { return nil, work(ctx) })
}

func (s *inTurn) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return s.unobserved(ctx, memstore.OpSetClaimMode, func(ctx context.Context) error { return s.Store.SetClaimMode(ctx, claim) })
}

func (s *inTurn) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (members storage.Members, err error) {
	err = s.unobserved(ctx, memstore.OpHeartbeat, func(ctx context.Context) (err error) {
		members, err = s.Store.Heartbeat(ctx, self, ttl)
		return err
	})
	return members, err
}

func (s *inTurn) Deregister(ctx context.Context, name string) error {
	return s.unobserved(ctx, memstore.OpDeregister, func(ctx context.Context) error { return s.Store.Deregister(ctx, name) })
}

func (s *inTurn) FenceRelay(ctx context.Context, name string, claim storage.Claim) error {
	return s.unobserved(ctx, memstore.OpBury, func(ctx context.Context) error { return s.Store.FenceRelay(ctx, name, claim) })
}

func (s *inTurn) Purge(ctx context.Context, retention time.Duration, limit int) (n int, err error) {
	err = s.unobserved(ctx, memstore.OpPurge, func(ctx context.Context) (err error) {
		n, err = s.Store.Purge(ctx, retention, limit)
		return err
	})
	return n, err
}

func (s *inTurn) Remaining(ctx context.Context, limit int, each func(*storage.Row) bool) error {
	return s.unobserved(ctx, memstore.OpRemaining, func(ctx context.Context) error { return s.Store.Remaining(ctx, limit, each) })
}

func (s *inTurn) Controls(ctx context.Context) (controls []storage.Control, err error) {
	err = s.unobserved(ctx, memstore.OpControls, func(ctx context.Context) (err error) {
		controls, err = s.Store.Controls(ctx)
		return err
	})
	return controls, err
}

func (s *inTurn) BlockedKeys(ctx context.Context, lanes []int, limit int) (keys []storage.BlockedKey, err error) {
	err = s.unobserved(ctx, memstore.OpBlockedKeys, func(ctx context.Context) (err error) {
		keys, err = s.Store.BlockedKeys(ctx, lanes, limit)
		return err
	})
	return keys, err
}

func (s *inTurn) BlockedAmong(ctx context.Context, asked []storage.LaneKey) (keys []storage.BlockedKey, err error) {
	err = s.unobserved(ctx, memstore.OpBlockedKeys, func(ctx context.Context) (err error) {
		keys, err = s.Store.BlockedAmong(ctx, asked)
		return err
	})
	return keys, err
}

func (s *inTurn) Read(ctx context.Context, request storage.ReadRequest) (page storage.Page, err error) {
	err = s.unobserved(ctx, memstore.OpRead, func(ctx context.Context) (err error) {
		page, err = s.Store.Read(ctx, request)
		return err
	})
	return page, err
}

func (s *inTurn) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) (rows []storage.Row, left []storage.Position, err error) {
	err = s.unobserved(ctx, memstore.OpScan, func(ctx context.Context) (err error) {
		rows, left, err = s.Store.Scan(ctx, positions, except, keep)
		return err
	})
	return rows, left, err
}

func (s *inTurn) Due(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) (rows []storage.Row, next storage.DueCursor, err error) {
	err = s.unobserved(ctx, memstore.OpDue, func(ctx context.Context) (err error) {
		rows, next, err = s.Store.Due(ctx, lanes, after, limit, maxBytes)
		return err
	})
	if err != nil {
		return nil, after, err
	}
	return rows, next, nil
}

// FoundLate reports a problem: no row of these histories may appear at or below a page's safe id.
func (s *inTurn) FoundLate() {
	s.c.problem("a row has appeared where, according to a page, no row could appear")
	s.Store.FoundLate()
}

// holder is the owner and the fence of a lane.
type holder struct {
	owner string
	fence int64
}

// holders reads the lanes' table.
func (s *inTurn) holders(ctx context.Context) (lanes [storage.Lanes]holder, err error) {
	err = s.c.query(ctx, "SELECT lane, COALESCE(owner, ''), fence FROM "+s.c.table.Lanes, func(rows *sql.Rows) error {
		var lane int
		var h holder
		err := rows.Scan(&lane, &h.owner, &h.fence)
		if err == nil {
			lanes[lane] = h
		}
		return err
	})
	return lanes, err
}

func (s *inTurn) Acquire(ctx context.Context, name string, count int, ttl time.Duration) (grants []storage.Grant, err error) {
	err = s.do(ctx, memstore.OpAcquire, func(ctx context.Context) (changes []memstore.Change, err error) {
		var before, after [storage.Lanes]holder
		err = firstError(
			func() (err error) { before, err = s.holders(ctx); return err },
			func() (err error) { grants, err = s.Store.Acquire(ctx, name, count, ttl); return err },
			func() (err error) { after, err = s.holders(ctx); return err },
		)
		for lane, h := range after {
			if h != before[lane] {
				changes = append(changes, memstore.Change{Lane: lane, Fence: h.fence})
			}
		}
		return changes, err
	})
	return grants, err
}

func (s *inTurn) Renew(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) (kept []storage.Lease, err error) {
	err = s.do(ctx, memstore.OpRenew, func(ctx context.Context) (changes []memstore.Change, err error) {
		var after [storage.Lanes]holder
		err = firstError(
			func() (err error) { kept, err = s.Store.Renew(ctx, name, renewals, ttl); return err },
			func() (err error) { after, err = s.holders(ctx); return err },
		)
		for _, r := range renewals {
			if after[r.Lane] == (holder{name, r.Fence}) {
				changes = append(changes, memstore.Change{Lane: r.Lane, Fence: r.Fence})
			}
		}
		return changes, err
	})
	return kept, err
}

func (s *inTurn) Release(ctx context.Context, name string, renewals []storage.Renewal) error {
	return s.do(ctx, memstore.OpRelease, func(ctx context.Context) (changes []memstore.Change, err error) {
		var before, after [storage.Lanes]holder
		err = firstError(
			func() (err error) { before, err = s.holders(ctx); return err },
			func() error { return s.Store.Release(ctx, name, renewals) },
			func() (err error) { after, err = s.holders(ctx); return err },
		)
		for _, r := range renewals {
			if before[r.Lane] == (holder{name, r.Fence}) && after[r.Lane].owner == "" {
				changes = append(changes, memstore.Change{Lane: r.Lane, Fence: r.Fence})
			}
		}
		return changes, err
	})
}

// stored is a row in one of the tables.
type stored struct {
	state    storage.State // empty: the row does not exist
	attempts int
	holds    int
	due      string
}

// rows reads the rows of settlements from the tables.
func (s *inTurn) rows(ctx context.Context, settlements []storage.Settlement) (map[int64]stored, error) {
	var ids []string
	for _, settlement := range settlements {
		ids = append(ids, strconv.FormatInt(settlement.ID, 10))
	}
	among, found := " WHERE id IN ("+strings.Join(append(ids, "0"), ",")+")", map[int64]stored{} // no row has the id 0
	read := func(query string) error {
		return s.c.query(ctx, query+among, func(rows *sql.Rows) error {
			var id int64
			var row stored
			err := rows.Scan(&id, &row.state, &row.attempts, &row.holds, &row.due)
			if _, twice := found[id]; twice {
				return fmt.Errorf("row %d exists twice", id)
			}
			found[id] = row
			return err
		})
	}
	return found, firstError(
		func() error { return read("SELECT id, 'pending', attempts, 0, '' FROM " + s.c.table.Pending) },
		func() error {
			return read("SELECT id, state, attempts, holds, COALESCE(CAST(available_at AS CHAR(40)), '') FROM " + s.c.table.Held)
		},
		func() error { return read("SELECT id, 'done', attempts, 0, '' FROM " + s.c.table.Done) },
	)
}

// Settle finds the result of each settlement by comparing the tables before and after the call.
func (s *inTurn) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (counts storage.Settled, err error) {
	settlements = slices.Clone(settlements)
	err = s.do(ctx, memstore.OpSettle, func(ctx context.Context) (changes []memstore.Change, err error) {
		var lanes [storage.Lanes]holder
		var before, after map[int64]stored
		err = firstError(
			func() (err error) { lanes, err = s.holders(ctx); return err },
			func() (err error) { before, err = s.rows(ctx, settlements); return err },
			func() (err error) { counts, err = s.Store.Settle(ctx, name, keep, settlements); return err },
			func() (err error) { after, err = s.rows(ctx, settlements); return err },
		)
		for _, want := range settlements {
			row := after[want.ID]
			change := memstore.Change{ID: want.ID, Lane: want.Lane, Fence: want.Fence, To: row.state, Attempts: row.attempts}
			switch {
			case row == before[want.ID]: // a settlement that is fenced and changes a row has the wrong result in the trace
				change.Refused, change.To = true, want.State
				change.Fenced = lanes[want.Lane] != holder{name, want.Fence}
			case row.state == "":
				change.To = storage.StateDiscarded
			case row.attempts != want.Attempts:
				s.c.problem("row %d has %d attempts after a settlement with %d", want.ID, row.attempts, want.Attempts)
			}
			before[want.ID] = row // a second settlement of the row has changed nothing
			changes = append(changes, change)
		}
		return changes, err
	})
	return counts, err
}

// firstError calls the functions until one returns an error.
func firstError(all ...func() error) error {
	for _, each := range all {
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}
