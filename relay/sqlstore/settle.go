package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/rowrelay/rowrelay/relay"
)

// Settle implements [relay.Store]. A batch is of rows by lanes, or of rows by
// rows.
func (s *Store) Settle(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (settled relay.Settled, err error) {
	if len(settlements) == 0 {
		return relay.Settled{}, nil
	}
	ordered, err := inOrder(settlements)
	if err != nil {
		return relay.Settled{}, err
	}
	defer s.settlingClaims(settlements[0])()
	err = s.write(ctx, "settle rows of table", func() error {
		settled, err = s.settle(ctx, nil, name, keep, ordered, settlements)
		return err
	})
	return settled, err
}

// settle changes the rows once, and counts what became of the settlements as they were
// given. The transaction is nil for one of its own.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, name string, keep bool, ordered, settlements []relay.Settlement) (relay.Settled, error) {
	began := s.horizon.before()
	found, err := s.backend.Settle(ctx, tx, name, keep, ordered)
	if err != nil {
		return relay.Settled{}, err
	}
	s.wrote(found.XID, began)
	settled := relay.Settled{Changed: found.Changed, Fenced: found.Fenced}
	for _, settlement := range settlements {
		if settlement.Token == "" && !found.Held[relay.Lease{Lane: settlement.Lane, Fence: settlement.Fence}] {
			settled.Fenced++
		}
	}
	settled.Missing = len(settlements) - settled.Changed - settled.Fenced
	return settled, nil
}

// AtOnce implements [relay.Store]. Where one may write at a time, a settlement of
// all lanes has rows that lie together, which those of some lanes don't.
func (s *Store) AtOnce() relay.AtOnce {
	if s.traits.OneWriter {
		return relay.AtOnce{Claims: s.traits.Claims, Settles: 1}
	}
	return relay.AtOnce{Claims: s.traits.Claims, Settles: 2}
}

// inOrder returns the settlements in the order of lanes and ids, each row once: two
// settles that meet lock in the same order. It refuses those that no store can write.
func inOrder(settlements []relay.Settlement) ([]relay.Settlement, error) {
	places := make([]int32, len(settlements))
	for i := range places {
		places[i] = int32(i)
	}
	slices.SortFunc(places, func(i, j int32) int {
		a, b := &settlements[i], &settlements[j]
		if order := cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.ID, b.ID)); order != 0 {
			return order
		}
		return cmp.Or(cmp.Compare(a.MessageID, b.MessageID), cmp.Compare(i, j))
	})
	ordered := make([]relay.Settlement, 0, len(settlements))
	byRows := settlements[0].Token != ""
	for _, at := range places {
		settlement := &settlements[at]
		if err := check(settlement, byRows); err != nil {
			return nil, err
		}
		if n := len(ordered); n > 0 && sameRow(&ordered[n-1], settlement) {
			continue // the first one changes it, and the others find it gone
		}
		ordered = append(ordered, *settlement)
		last := &ordered[len(ordered)-1]
		last.Error, last.Receipt = storable(last.Error), storable(last.Receipt)
	}
	return ordered, nil
}

func sameRow(a, b *relay.Settlement) bool {
	return a.ID == b.ID && a.Lane == b.Lane && a.Held == b.Held && a.Fence == b.Fence && a.Token == b.Token && a.MessageID == b.MessageID
}

func check(settlement *relay.Settlement, byRows bool) error {
	switch {
	case settlement.Lane < 0 || settlement.Lane >= relay.Lanes:
		return fmt.Errorf("settle row %d: there is no lane %d", settlement.ID, settlement.Lane)
	case byRows != (settlement.Token != ""):
		return fmt.Errorf("settle row %d: one batch has rows that were claimed and rows of leased lanes", settlement.ID)
	case !isMessageID(settlement.MessageID):
		return fmt.Errorf("settle row %d: %q is no message's id", settlement.ID, settlement.MessageID)
	}
	switch settlement.State {
	case relay.StateDone, relay.StateRetry, relay.StateError, relay.StateScheduled:
		return nil
	case relay.StatePending:
		if !byRows {
			return fmt.Errorf("settle row %d: only a claim by rows is given back as pending", settlement.ID)
		}
		return nil
	default:
		return fmt.Errorf("settle row %d: no relay makes it %q", settlement.ID, settlement.State)
	}
}

// isMessageID says that a text is such as the tables have: some statements have it in
// their text.
func isMessageID(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case c == '-', '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
		default:
			return false
		}
	}
	return len(id) == 36
}

// settlingClaims keeps extensions away while claimed rows are settled.
func (s *Store) settlingClaims(first relay.Settlement) (done func()) {
	if first.Token == "" {
		return func() {}
	}
	s.claims.RLock()
	return s.claims.RUnlock
}

// storable makes a text that every database takes: a sink's words may be any
// bytes.
func storable(text string) string {
	if text == "" {
		return ""
	}
	return string(bytes.ReplaceAll(bytes.ToValidUTF8([]byte(text), []byte("�")), []byte{0}, []byte("�")))
}
