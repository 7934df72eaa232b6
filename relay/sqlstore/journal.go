package sqlstore

import (
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// WriteJournal implements [relay.Journaler].
func (s *Store) WriteJournal(ctx context.Context, name string, journals []relay.Journal) ([]relay.Lease, error) {
	leases := make([]backend.Lease, len(journals))
	for i, j := range journals {
		written, err := backend.JournalText(j)
		if err != nil {
			return nil, err
		}
		leases[i] = backend.Lease{Lease: j.Lease, Journal: written}
	}
	slices.SortFunc(leases, byLane)
	return s.change(ctx, "write the journal of table", leases, func() ([]relay.Lease, uint64, error) {
		return s.backend.ChangeLeases(ctx, backend.LeaseChange{Kind: backend.WriteJournal, Relay: name}, leases)
	})
}

// Journals implements [relay.Journaler].
func (s *Store) Journals(ctx context.Context) (journals []relay.Journal, err error) {
	err = s.try(ctx, "read the journals of table", func() error {
		journals, err = backend.Journals(ctx, s.db, s.traits.Queries.Journals)
		return err
	})
	return journals, err
}

// Pick implements [relay.Journaler]. A row that waits for another attempt has
// left the pending ones: so it looks at the held ones last.
func (s *Store) Pick(ctx context.Context, wanted []relay.RowID) (rows []relay.Row, err error) {
	for part := range slices.Chunk(wanted, pickLimit) {
		pending, err := s.pick(ctx, part, false)
		if err != nil {
			return nil, err
		}
		held, err := s.pick(ctx, part, true)
		if err != nil {
			return nil, err
		}
		rows = append(append(rows, pending...), held...)
	}
	return rows, nil
}
