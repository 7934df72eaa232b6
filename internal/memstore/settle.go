package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Parallelism implements [storage.Store].
func (*Store) Parallelism() storage.Parallelism { return storage.Parallelism{Claims: 2, Settles: 2} }

// Settle implements [storage.Store]. Settle first locks the settlements' lanes, and then calls the
// hook Fail with [OpSettleLocked] before it changes rows.
func (s *Store) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	if err := firstOf(
		func() error { return checkSettlements(settlements) },
		func() error { return s.before(ctx, OpSettle) },
	); err != nil {
		return storage.Settled{}, err
	}
	var counts storage.Settled
	err := s.withLanes(settlements, func(epoch int) error {
		if err := s.before(ctx, OpSettleLocked); err != nil {
			return err
		}
		return s.unlocked(ctx, settlements, func() error {
			if s.db.epochs != epoch {
				return errLost
			}
			var dead []*record
			for _, settlement := range settlements {
				if parked := s.db.settle(name, keep, settlement, &counts); parked != nil && settlement.DeadLetter != nil {
					dead = append(dead, parked.copied(settlement.DeadLetter, s.db.now()))
				}
			}
			s.db.write(dead)
			return nil
		})
	})
	if err == nil {
		err = s.after(ctx, OpSettle)
	}
	if err != nil {
		return storage.Settled{}, err
	}
	return counts, nil
}

func checkSettlements(settlements []storage.Settlement) error {
	type row struct {
		identity
		deferred bool
		fence    int64
	}
	seen := map[row]string{} // for each row, the sinks that are outstanding after its settlement; empty if the settlement is for all sinks of the row
	for _, settlement := range settlements {
		if settlement.Lane < 0 || settlement.Lane >= storage.Lanes {
			return fmt.Errorf("settle row %d: there is no lane %d", settlement.ID, settlement.Lane)
		}
		if settlement.DeadLetter != nil && settlement.State != storage.StateError {
			return fmt.Errorf("settle row %d: a dead letter requires the state error", settlement.ID)
		}
		if (settlement.For == "") != (settlement.Left == "") || settlement.Left != "" && settlement.Left == settlement.Sinks {
			return fmt.Errorf("settle row %d: For is %q and Left is %q: set both or neither, and Left must differ from the row's sinks %q", settlement.ID, settlement.For, settlement.Left, settlement.Sinks)
		}
		if settlement.Left != "" && settlement.Token != "" {
			return fmt.Errorf("settle row %d for %s: a message that is claimed by rows has only one sink", settlement.ID, settlement.For)
		}
		of := row{identity{settlement.Lane, settlement.ID, settlement.MessageID, ""}, settlement.Deferred, settlement.Fence}
		if settlement.Deferred {
			of.sinks = settlement.Sinks
		}
		left, twice := seen[of]
		if twice && left+settlement.Left != "" {
			return fmt.Errorf("settle row %d: the batch has several settlements of the row, and one is for some of its sinks", settlement.ID)
		}
		seen[of] = left + settlement.Left
		switch settlement.State {
		case storage.StateDone, storage.StateRetry, storage.StateError, storage.StateDiscarded, storage.StateScheduled:
		case storage.StatePending:
			if settlement.Token == "" {
				return fmt.Errorf("settle row %d: only a claimed row can be settled as pending", settlement.ID)
			}
		default:
			return fmt.Errorf("settle row %d: invalid state %q", settlement.ID, settlement.State)
		}
	}
	return nil
}

// withLanes calls the function `work` and prevents takeovers of the settlements' lanes while the
// function runs. The function's argument is the epoch in which the lanes were locked.
func (s *Store) withLanes(settlements []storage.Settlement, work func(epoch int) error) error {
	epoch := s.lock(settlements, 1)
	defer s.lock(settlements, -1)
	return work(epoch)
}

func (s *Store) lock(settlements []storage.Settlement, by int) (epoch int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, settlement := range settlements {
		s.db.lanes[settlement.Lane].settling += by
	}
	return s.db.epochs
}

// settle writes one settlement and counts its result. It returns the changed row, or nil if nothing
// was changed.
func (db *DB) settle(name string, keep bool, s storage.Settlement, counts *storage.Settled) (settled *record) {
	change := Change{Op: OpSettle, Relay: name, Lane: s.Lane, Fence: s.Fence, Token: s.Token, ID: s.ID, To: s.State, Attempts: s.Attempts, For: s.For, Left: s.Left}
	r := db.settleable(s)
	switch {
	case s.Token == "" && db.leased(name, storage.Lease{Lane: s.Lane, Fence: s.Fence}) == nil, r != nil && r.token != s.Token:
		change.Refused, change.Fenced = true, true
		counts.Fenced++
	case r == nil:
		change.Refused = true
		counts.Missing++
	default:
		change.From, settled = r.state, r.settled(name, s, db.now())
		if s.Left == "" {
			db.move(r, settled, keep)
		} else {
			db.split(r, settled.withSinks(s.For), r.withSinks(s.Left), keep)
		}
		counts.Changed++
	}
	db.note(change)
	return settled
}

// write inserts copies of rows. The copies have the ids of the originals, and write gives them new ids
// in the same order.
func (db *DB) write(copies []*record) {
	slices.SortStableFunc(copies, byID)
	for _, r := range copies {
		r.row.ID = db.nextID(r.row.Message.Key)
		r.row.Lane, r.row.CreatedAt = laneOf(r.row.Message.Key, r.row.ID), db.now()
		db.written++
		db.note(Change{Op: OpInsert, ID: r.row.ID, Lane: r.row.Lane, To: storage.StatePending})
	}
	db.appear(copies)
}

// settleable returns the row in the table where the settlement expects it, or nil. It compares a
// pending row's sinks only if the settlement names sinks. It returns nil for parked rows, because
// relays can't settle them. It also returns nil if an operator has changed the row since the relay read
// it, so that a repeated settlement doesn't undo the change.
func (db *DB) settleable(s storage.Settlement) *record {
	if s.Deferred {
		r := db.held.rows[identity{s.Lane, s.ID, s.MessageID, s.Sinks}]
		if r == nil || r.state == storage.StateError || s.Holds && r.row.Holds != storage.NoHold || s.State == storage.StateRetry && s.Left == "" && r.row.Holds >= storage.WantSkip || changedSince(r, s) {
			return nil
		}
		return r
	}
	place, there := db.find(s.Lane, s.ID)
	if !there {
		return nil
	}
	r := db.hot[s.Lane][place]
	if r.row.Message.ID != s.MessageID || s.Sinks+s.Left != "" && r.row.Sinks != s.Sinks {
		return nil
	}
	return r
}

// changedSince reports whether the deferred row was settled, or was changed by an operator,
// after the relay had read the row.
func changedSince(r *record, s storage.Settlement) bool {
	stays := s.Left == "" && s.State != storage.StateDone && s.State != storage.StateDiscarded
	return stays && !s.AvailableAt.IsZero() && r.row.Message.AvailableAt.After(s.AvailableAt.Add(time.Millisecond))
}

// move moves a row from its table to the table of its new state.
func (db *DB) move(from, to *record, keep bool) {
	if to.state == storage.StatePending {
		db.replace(to)
		return
	}
	db.held.take(from.identity())
	db.remove(from)
	db.put(to, keep)
}

// split settles a row for some of its sinks. It adds the record `part`, which has these sinks, and
// replaces the row's record with `left`, which has the other sinks.
func (db *DB) split(from, part, left *record, keep bool) {
	if from.state == storage.StatePending {
		db.replace(left)
	} else {
		db.held.take(from.identity())
		db.held.put(left)
	}
	db.put(part, keep)
}

// put adds a settled row to the table of its state.
func (db *DB) put(to *record, keep bool) {
	switch {
	case to.state == storage.StateDiscarded:
	case to.state != storage.StateDone:
		db.held.put(to)
	case keep:
		db.done = append(db.done, to)
	}
}
