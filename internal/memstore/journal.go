package memstore

import (
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// WriteJournal implements [storage.Journaler].
func (s *Store) WriteJournal(ctx context.Context, name string, journals []storage.Journal) (held []storage.Lease, err error) {
	err = s.do(ctx, OpJournal, func() error {
		for _, j := range journals {
			if l := s.db.leased(name, j.Lease); l != nil {
				l.suspects, l.batchRefs = slices.Clone(j.Suspects), slices.Clone(j.Batches)
				held = append(held, j.Lease)
			}
		}
		return nil
	})
	return held, err
}

// Journals implements [storage.Journaler].
func (s *Store) Journals(ctx context.Context) (journals []storage.Journal, err error) {
	err = s.do(ctx, OpJournals, func() error {
		for i, l := range s.db.lanes {
			if len(l.suspects)+len(l.batchRefs) > 0 {
				lease := storage.Lease{Lane: i, Fence: l.fence}
				journals = append(journals, storage.Journal{Lease: lease, Suspects: l.suspects, Batches: l.batchRefs})
			}
		}
		return nil
	})
	return journals, err
}

// Pick implements [storage.Journaler]. If an id was assigned again, Pick may return several
// rows with this id, from the tables of pending and of deferred rows.
func (s *Store) Pick(ctx context.Context, wanted []storage.RowID) (rows []storage.Row, err error) {
	err = s.do(ctx, OpPick, func() error {
		for _, w := range wanted {
			if place, there := s.db.find(w.Lane, w.ID); there {
				rows = append(rows, s.db.hot[w.Lane][place].read(s.db.now()))
			}
		}
		for _, r := range s.db.held.rows {
			if r.state != storage.StateError && slices.Contains(wanted, storage.RowID{Lane: r.row.Lane, ID: r.row.ID}) {
				rows = append(rows, r.readHeld())
			}
		}
		return nil
	})
	return rows, err
}
