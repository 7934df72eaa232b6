package memstore

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/relay"
)

// AtOnce implements [relay.Store].
func (*Store) AtOnce() relay.AtOnce { return relay.AtOnce{Claims: 2, Settles: 2} }

// Settle implements [relay.Store]. It locks its lanes first; between that and
// the change the hook Fail is called with [OpSettleLocked].
func (s *Store) Settle(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (relay.Settled, error) {
	if err := firstOf(
		func() error { return checkSettlements(settlements) },
		func() error { return s.before(ctx, OpSettle) },
	); err != nil {
		return relay.Settled{}, err
	}
	var counts relay.Settled
	err := s.withLanes(settlements, func(epoch int) error {
		if err := s.before(ctx, OpSettleLocked); err != nil {
			return err
		}
		return s.unlocked(ctx, settlements, func() error {
			if s.db.epochs != epoch {
				return errLost
			}
			for _, settlement := range settlements {
				s.db.settle(name, keep, settlement, &counts)
			}
			return nil
		})
	})
	if err == nil {
		err = s.after(ctx, OpSettle)
	}
	if err != nil {
		return relay.Settled{}, err
	}
	return counts, nil
}

func checkSettlements(settlements []relay.Settlement) error {
	for _, settlement := range settlements {
		if settlement.Lane < 0 || settlement.Lane >= relay.Lanes {
			return fmt.Errorf("settle row %d: there is no lane %d", settlement.ID, settlement.Lane)
		}
		switch settlement.State {
		case relay.StateDone, relay.StateRetry, relay.StateError, relay.StateScheduled:
		case relay.StatePending:
			if settlement.Token == "" {
				return fmt.Errorf("settle row %d: only a claim by rows is given back as pending", settlement.ID)
			}
		default:
			return fmt.Errorf("settle row %d: no relay makes it %q", settlement.ID, settlement.State)
		}
	}
	return nil
}

// withLanes keeps the lanes of the settlements from being taken over
// meanwhile. The work is told the epoch in which that was.
func (s *Store) withLanes(settlements []relay.Settlement, work func(epoch int) error) error {
	epoch := s.lock(settlements, 1)
	defer s.lock(settlements, -1)
	return work(epoch)
}

func (s *Store) lock(settlements []relay.Settlement, by int) (epoch int) {
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	for _, settlement := range settlements {
		s.db.lanes[settlement.Lane].settling += by
	}
	return s.db.epochs
}

// settle writes one settlement back and counts what it did.
func (db *DB) settle(name string, keep bool, s relay.Settlement, counts *relay.Settled) {
	change := Change{Op: OpSettle, Relay: name, Lane: s.Lane, Fence: s.Fence, Token: s.Token, ID: s.ID, To: s.State, Attempts: s.Attempts}
	r := db.settleable(s)
	switch {
	case s.Token == "" && db.leased(name, relay.Lease{Lane: s.Lane, Fence: s.Fence}) == nil, r != nil && r.token != s.Token:
		change.Refused, change.Fenced = true, true
		counts.Fenced++
	case r == nil:
		change.Refused = true
		counts.Missing++
	default:
		change.From = r.state
		db.move(r, r.settled(name, s, db.now()), keep)
		counts.Changed++
	}
	db.note(change)
}

// settleable finds the row where the settlement says that it is. A parked row
// is an operator's, not a relay's.
func (db *DB) settleable(s relay.Settlement) *record {
	if s.Held {
		if r := db.held.rows[identity{s.Lane, s.ID, s.MessageID}]; r != nil && r.state != relay.StateError {
			return r
		}
		return nil
	}
	if place, there := db.find(s.Lane, s.ID); there && db.hot[s.Lane][place].row.Message.ID == s.MessageID {
		return db.hot[s.Lane][place]
	}
	return nil
}

// move takes a row from its table to that of its new state.
func (db *DB) move(from, to *record, keep bool) {
	if to.state == relay.StatePending {
		db.replace(to)
		return
	}
	db.held.take(from.identity())
	db.remove(from)
	switch {
	case to.state != relay.StateDone:
		db.held.put(to)
	case keep:
		db.done = append(db.done, to)
	}
}
