package memstore

import (
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/relay"
)

// WriteJournal implements [relay.Journaler].
func (s *Store) WriteJournal(ctx context.Context, name string, journals []relay.Journal) (held []relay.Lease, err error) {
	err = s.do(ctx, OpJournal, func() error {
		for _, j := range journals {
			if l := s.db.leased(name, j.Lease); l != nil {
				l.suspects, l.tickets = slices.Clone(j.Suspects), slices.Clone(j.Tickets)
				held = append(held, j.Lease)
			}
		}
		return nil
	})
	return held, err
}

// Journals implements [relay.Journaler].
func (s *Store) Journals(ctx context.Context) (journals []relay.Journal, err error) {
	err = s.do(ctx, OpJournals, func() error {
		for i, l := range s.db.lanes {
			if len(l.suspects)+len(l.tickets) > 0 {
				lease := relay.Lease{Lane: i, Fence: l.fence}
				journals = append(journals, relay.Journal{Lease: lease, Suspects: l.suspects, Tickets: l.tickets})
			}
		}
		return nil
	})
	return journals, err
}

// Pick implements [relay.Journaler]. An id that was given out again may bring a row
// of each table.
func (s *Store) Pick(ctx context.Context, wanted []relay.RowID) (rows []relay.Row, err error) {
	err = s.do(ctx, OpPick, func() error {
		for _, w := range wanted {
			if place, there := s.db.find(w.Lane, w.ID); there {
				rows = append(rows, s.db.hot[w.Lane][place].read(s.db.now()))
			}
		}
		for _, r := range s.db.held.rows {
			if r.state != relay.StateError && slices.Contains(wanted, relay.RowID{Lane: r.row.Lane, ID: r.row.ID}) {
				rows = append(rows, r.readHeld())
			}
		}
		return nil
	})
	return rows, err
}
