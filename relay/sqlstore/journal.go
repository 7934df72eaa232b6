package sqlstore

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// journal is what stands in the table of lanes.
type journal struct {
	Suspects []relay.Suspect `json:"suspects,omitempty"`
	Tickets  []relay.Ticket  `json:"tickets,omitempty"`
}

// readJournal reads it. One that can't be read has nothing.
func readJournal(written text) (j journal) {
	if err := json.Unmarshal([]byte(written), &j); err != nil {
		return journal{}
	}
	return j
}

// WriteJournal implements [relay.Journaler].
func (s *Store) WriteJournal(ctx context.Context, name string, journals []relay.Journal) ([]relay.Lease, error) {
	leases := make([]dialect.Lease, len(journals))
	for i, j := range journals {
		written, err := json.Marshal(journal{j.Suspects, j.Tickets})
		if err != nil {
			return nil, err
		}
		leases[i] = dialect.Lease{Lane: j.Lane, Fence: j.Fence, Journal: string(written)}
	}
	slices.SortFunc(leases, byLane)
	return s.change(ctx, "write the journal of table", s.dialect.Journal(s.table, name, leases), len(leases))
}

// Journals implements [relay.Journaler].
func (s *Store) Journals(ctx context.Context) (journals []relay.Journal, err error) {
	err = s.try(ctx, "read the journals of table", func() error {
		journals = nil
		var lease relay.Lease
		var written text
		return all(ctx, s.db, s.dialect.Journals(s.table), func() {
			j := readJournal(written)
			journals = append(journals, relay.Journal{Lease: lease, Suspects: j.Suspects, Tickets: j.Tickets})
		}, &lease.Lane, &lease.Fence, &written)
	})
	return journals, err
}

// Pick implements [relay.Journaler]. A row that waits for another attempt has
// left the pending ones: so it looks at the held ones last.
func (s *Store) Pick(ctx context.Context, wanted []relay.RowID) (rows []relay.Row, err error) {
	for part := range slices.Chunk(wanted, pickLimit) {
		lanes, ids := make([]int, len(part)), make([]int64, len(part))
		for i, row := range part {
			lanes[i], ids[i] = row.Lane, row.ID
		}
		pending, err := s.pick(ctx, s.dialect.Pick(s.table, lanes, ids), false)
		if err != nil {
			return nil, err
		}
		held, err := s.pick(ctx, s.dialect.PickHeld(s.table, lanes, ids), true)
		if err != nil {
			return nil, err
		}
		rows = append(append(rows, pending...), held...)
	}
	return rows, nil
}
