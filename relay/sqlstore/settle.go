package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// Settle implements [relay.Store]. A batch is of rows by lanes, or of rows by
// rows. On PostgreSQL it is one statement.
func (s *Store) Settle(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (relay.Settled, error) {
	if len(settlements) == 0 {
		return relay.Settled{}, nil
	}
	settle, err := s.settling(name, keep, settlements)
	if err != nil {
		return relay.Settled{}, err
	}
	defer s.settlingClaims(settlements[0])()
	var settled relay.Settled
	err = s.write(ctx, "settle rows of table", func() (err error) {
		settled, err = s.settle(ctx, settle, settlements)
		return err
	})
	return settled, err
}

// AtOnce implements [relay.Store]. Where one may write at a time, a settlement of
// all lanes has rows that lie together, which those of some lanes don't.
func (s *Store) AtOnce() relay.AtOnce {
	many := relay.AtOnce{Claims: 1, Settles: 2}
	if s.dialect.OneWriter() {
		many.Settles = 1
	}
	if claims, ok := s.dialect.(dialect.ManyClaims); ok {
		many.Claims = claims.ClaimsAtOnce()
	}
	return many
}

func (s *Store) settle(ctx context.Context, settle dialect.Settle, settlements []relay.Settlement) (settled relay.Settled, err error) {
	if len(settle.Begin) == 0 && len(settle.Writes) == 0 {
		return s.settleIn(ctx, s.db, settle, settlements)
	}
	err = s.inTx(ctx, settle.Begin, func(tx *sql.Tx) error {
		settled, err = s.settleIn(ctx, tx, settle, settlements)
		return err
	})
	return settled, err
}

// settleIn runs what is left after Begin.
func (s *Store) settleIn(ctx context.Context, db querier, settle dialect.Settle, settlements []relay.Settlement) (relay.Settled, error) {
	found := facts{held: map[relay.Lease]bool{}}
	began := s.horizon.before()
	if err := found.read(ctx, db, settle.Facts); err != nil {
		return relay.Settled{}, err
	}
	writes := settle.Writes
	if settle.Then != nil {
		writes = settle.Then(found.holds)
	}
	for _, write := range writes {
		affected, err := exec(ctx, db, write.Query)
		if err != nil {
			return relay.Settled{}, err
		}
		if write.Counts {
			found.changed += affected
		}
	}
	s.wrote(found.xid, began)
	return found.settled(settlements), nil
}

// facts are what a settle's first statement tells.
type facts struct {
	held            map[relay.Lease]bool
	changed, fenced int
	xid             uint64
}

func (f *facts) read(ctx context.Context, db querier, query dialect.Query) error {
	var word string
	var a, b int64
	return all(ctx, db, query, func() {
		switch word {
		case "lane":
			f.held[relay.Lease{Lane: int(a), Fence: b}] = true
		case "changed":
			f.changed += int(a)
		case "fenced":
			f.fenced += int(a)
		case "xid":
			f.xid = uint64(a)
		}
	}, &word, &a, &b)
}

func (f *facts) holds(lane int, fence int64) bool {
	return f.held[relay.Lease{Lane: lane, Fence: fence}]
}

func (f *facts) settled(settlements []relay.Settlement) relay.Settled {
	settled := relay.Settled{Changed: f.changed, Fenced: f.fenced}
	for _, settlement := range settlements {
		if settlement.Token == "" && !f.holds(settlement.Lane, settlement.Fence) {
			settled.Fenced++
		}
	}
	settled.Missing = len(settlements) - settled.Changed - settled.Fenced
	return settled
}

// settling makes the statements, in the order of lanes and ids: two settles
// that meet lock in the same order.
func (s *Store) settling(name string, keep bool, settlements []relay.Settlement) (dialect.Settle, error) {
	converted := make([]dialect.Settlement, 0, len(settlements))
	byRows := settlements[0].Token != ""
	var last *relay.Settlement
	for _, at := range inOrder(settlements) {
		settlement := &settlements[at]
		if err := check(settlement, byRows); err != nil {
			return dialect.Settle{}, err
		}
		if last != nil && sameRow(last, settlement) {
			continue // the first one changes it, and the others find it gone
		}
		last = settlement
		converted = append(converted, dialect.Settlement{
			ID: settlement.ID, Lane: settlement.Lane, MessageID: settlement.MessageID, Fence: settlement.Fence, Token: settlement.Token, Held: settlement.Held,
			State: string(settlement.State), Attempts: settlement.Attempts, Crashes: settlement.Crashes, Delay: settlement.Delay,
			Error: storable(settlement.Error), Receipt: storable(settlement.Receipt),
		})
	}
	if byRows {
		return s.dialect.SettleRows(s.table, name, keep, converted), nil
	}
	return s.dialect.SettleLanes(s.table, name, keep, converted), nil
}

func sameRow(a, b *relay.Settlement) bool {
	return a.ID == b.ID && a.Lane == b.Lane && a.Held == b.Held && a.Fence == b.Fence && a.Token == b.Token && a.MessageID == b.MessageID
}

// inOrder returns the places of the settlements in the order of lanes and ids.
func inOrder(settlements []relay.Settlement) []int32 {
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
	return places
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
