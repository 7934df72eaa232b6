package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Settling. What became of rows comes in, by lanes or by rows, and is written by one
// transaction, in the order of lanes and ids; a handler's effects go with its row's mark
// into one transaction. Rows that are done are deleted after their retention.

// Settle implements [storage.Store]. A batch is of rows by lanes, or of rows by
// rows.
func (s *Store) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	if len(settlements) == 0 {
		return storage.Settled{}, nil
	}
	ordered, err := inOrder(settlements)
	if err != nil {
		return storage.Settled{}, err
	}
	if ordered[0].Token != "" { // no extension meanwhile
		s.claims.RLock()
		defer s.claims.RUnlock()
	}
	return write(ctx, s, "settle rows of table", func() (storage.Settled, uint64, error) {
		return s.settle(ctx, nil, name, keep, ordered, settlements)
	})
}

// settle changes the rows once, and counts what became of the settlements as they were
// given. The transaction is nil for one of its own.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, name string, keep bool, ordered, settlements []storage.Settlement) (settled storage.Settled, xid uint64, err error) {
	found, err := s.settleParts(ctx, tx, name, keep, ordered)
	if err != nil {
		return settled, 0, err
	}
	settled = storage.Settled{Changed: found.Changed, Fenced: found.Fenced}
	for i := range settlements {
		if t := &settlements[i]; t.Token == "" && !found.Held[storage.Lease{Lane: t.Lane, Fence: t.Fence}] {
			settled.Fenced++
		}
	}
	settled.Missing = len(settlements) - settled.Changed - settled.Fenced
	return settled, found.XID, nil
}

// settleParts settles rows for some of their sinks, if there are such settlements, and then the
// others, in one transaction. A batch may have several of one row, one after the other: each
// finds the sinks that the one before has left, the last one may be for the whole row. Those of
// hot rows that name sinks go to the backend by themselves, the same sinks together: it looks
// whether the rows still have these, which is left out for the many that name none.
func (s *Store) settleParts(ctx context.Context, tx *sql.Tx, name string, keep bool, ordered []storage.Settlement) (settled backend.Settled, err error) {
	var rounds [][]storage.Settlement // of which each has a row once
	var whole []storage.Settlement
	named := map[string][]storage.Settlement{}
	round := 0
	for i := range ordered {
		t := &ordered[i]
		if t.Left == "" && backend.NamesSinks(t) {
			named[t.Sinks] = append(named[t.Sinks], *t)
			continue
		} else if t.Left == "" {
			whole = append(whole, *t)
			continue
		}
		if i > 0 && ordered[i-1].Left != "" && sameRow(t, &ordered[i-1]) {
			round++
		} else {
			round = 0
		}
		if round == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[round] = append(rounds[round], *t)
	}
	if len(rounds)+len(named) == 0 || len(rounds)+len(whole) == 0 && len(named) == 1 {
		return s.settleAndDiscard(ctx, tx, name, keep, ordered)
	}
	settled.Held = map[storage.Lease]bool{}
	err = s.within(ctx, tx, func(tx *sql.Tx) error {
		for _, parts := range rounds {
			more, err := s.backend.SettleParts(ctx, tx, name, keep, parts)
			if err != nil {
				return err
			}
			settled.Add(more)
		}
		for _, sinks := range slices.Sorted(maps.Keys(named)) {
			more, err := s.settleAndDiscard(ctx, tx, name, keep, named[sinks])
			if err != nil {
				return err
			}
			settled.Add(more)
		}
		if len(whole) == 0 {
			return nil
		}
		more, err := s.settleAndDiscard(ctx, tx, name, keep, whole)
		settled.Add(more)
		return err
	})
	return settled, err
}

// within works in the transaction, or in one of its own if there is none.
func (s *Store) within(ctx context.Context, tx *sql.Tx, work func(*sql.Tx) error) error {
	if tx != nil {
		return work(tx)
	}
	return backend.InTx(ctx, s.db, s.traits.Tx, nil, work)
}

// settleAndDiscard has the backend settle the rows. Those that are discarded are, to a backend,
// done rows that aren't kept: in a batch with others they are settled by a statement of their own,
// in the same transaction.
func (s *Store) settleAndDiscard(ctx context.Context, tx *sql.Tx, name string, keep bool, ordered []storage.Settlement) (backend.Settled, error) {
	var discarded, others []storage.Settlement
	for i := range ordered {
		if ordered[i].State == storage.StateDiscarded {
			discarded = append(discarded, ordered[i])
			discarded[len(discarded)-1].State = storage.StateDone
		}
	}
	switch len(discarded) {
	case 0:
		return s.backend.Settle(ctx, tx, name, keep, ordered)
	case len(ordered):
		return s.backend.Settle(ctx, tx, name, false, discarded)
	}
	for i := range ordered {
		if ordered[i].State != storage.StateDiscarded {
			others = append(others, ordered[i])
		}
	}
	var settled backend.Settled
	err := s.within(ctx, tx, func(tx *sql.Tx) (err error) {
		if settled, err = s.backend.Settle(ctx, tx, name, keep, others); err != nil {
			return err
		}
		more, err := s.backend.Settle(ctx, tx, name, false, discarded)
		settled.Add(more)
		return err
	})
	return settled, err
}

// Parallelism implements [storage.Store]. Where one may write at a time, one settlement of all lanes
// touches rows that lie together; two, of some lanes each, would not.
func (s *Store) Parallelism() storage.Parallelism {
	if s.traits.Frontier == backend.OneWriter {
		return storage.Parallelism{Claims: s.traits.Claims, Settles: 1}
	}
	return storage.Parallelism{Claims: s.traits.Claims, Settles: 2}
}

// inOrder returns the settlements in the order of lanes and ids, each row once: two
// settles that meet lock in the same order. Those for some of a row's sinks follow that for the
// whole row, in the order in which they were given, and may be several. It refuses those that no store can write: a
// message's id has to be such as the tables have, as some statements have it in their text.
// And it makes texts storable: a sink's words may be any bytes.
func inOrder(settlements []storage.Settlement) ([]storage.Settlement, error) {
	const wholeHeld = 2
	kind := func(t *storage.Settlement) (kind int) {
		if t.Deferred {
			kind += wholeHeld
		}
		if t.Left != "" {
			kind++
		}
		return kind
	}
	places := make([]int32, len(settlements))
	for i := range places {
		places[i] = int32(i)
	}
	slices.SortFunc(places, func(i, j int32) int {
		a, b := &settlements[i], &settlements[j]
		if order := cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.ID, b.ID)); order != 0 {
			return order
		}
		order := cmp.Or(cmp.Compare(a.MessageID, b.MessageID), kind(a)-kind(b))
		if order == 0 && kind(a) == wholeHeld {
			order = cmp.Compare(a.Sinks, b.Sinks)
		}
		return cmp.Or(order, cmp.Compare(i, j))
	})
	ordered := make([]storage.Settlement, 0, len(settlements))
	byRows := settlements[0].Token != ""
	for _, at := range places {
		t := &settlements[at]
		switch {
		case t.Lane < 0 || t.Lane >= storage.Lanes:
			return nil, fmt.Errorf("settle row %d: there is no lane %d", t.ID, t.Lane)
		case byRows != (t.Token != ""):
			return nil, fmt.Errorf("settle row %d: one batch has rows that were claimed and rows of leased lanes", t.ID)
		case len(t.MessageID) != 36 || strings.Trim(t.MessageID, "-0123456789abcdefABCDEF") != "":
			return nil, fmt.Errorf("settle row %d: %q is no message's id", t.ID, t.MessageID)
		case t.State == storage.StatePending && !byRows:
			return nil, fmt.Errorf("settle row %d: only a claim by rows is given back as pending", t.ID)
		case t.DeadLetter != nil && t.State != storage.StateError:
			return nil, fmt.Errorf("settle row %d: a dead letter is of a message that is parked", t.ID)
		case !slices.Contains(settledStates, t.State):
			return nil, fmt.Errorf("settle row %d: no relay makes it %q", t.ID, t.State)
		case (t.For == "") != (t.Left == "") || t.Left != "" && t.Left == t.Sinks:
			return nil, fmt.Errorf("settle row %d: for %q, with %q left of %q", t.ID, t.For, t.Left, t.Sinks)
		case t.Left != "" && byRows:
			return nil, fmt.Errorf("settle row %d for %s: by rows, a message has one sink", t.ID, t.For)
		}
		if n := len(ordered); n > 0 {
			last := &ordered[n-1]
			sameSinks := t.For == last.For && t.Left == last.Left && (t.Sinks == last.Sinks || t.Left == "" && !t.Deferred)
			if sameRow(t, last) && sameSinks && t.Fence == last.Fence && t.Token == last.Token {
				continue // the first one changes it, and the others find it gone
			}
		}
		ordered = append(ordered, *t)
		last := &ordered[len(ordered)-1]
		for _, text := range []*string{&last.Error, &last.Receipt} {
			if *text != "" {
				*text = string(bytes.ReplaceAll(bytes.ToValidUTF8([]byte(*text), []byte("�")), []byte{0}, []byte("�")))
			}
		}
	}
	return ordered, nil
}

// sameRow says that two settlements are of one message of one table: of one row, but for held
// ones of several sinks.
func sameRow(a, b *storage.Settlement) bool {
	return a.ID == b.ID && a.Lane == b.Lane && a.MessageID == b.MessageID && a.Deferred == b.Deferred
}

// settledStates are those that a settlement may have.
var settledStates = []storage.State{storage.StateDone, storage.StateRetry, storage.StateError, storage.StateDiscarded, storage.StateScheduled, storage.StatePending}

// HandleTx implements [storage.TxStore].
func (s *Store) HandleTx(ctx context.Context, name string, keep bool, done storage.Settlement, handler func(context.Context, *sql.Tx) error) error {
	settlements, err := inOrder([]storage.Settlement{done})
	if err != nil {
		return err
	}
	if s.traits.Frontier == backend.OneWriter {
		if err := s.turn(ctx); err != nil {
			return err
		}
		defer func() { <-s.writing }()
	}
	if done.Token != "" {
		s.handling.add(done.ID, 1)
		defer s.handling.add(done.ID, -1)
	}
	tx, err := s.beginSettled(ctx, name, keep, settlements)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := handler(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the handling of row %d of table %s: %w", done.ID, s.table, err)
	}
	return nil
}

// beginSettled returns a transaction that has marked the row, with no extension
// meanwhile.
func (s *Store) beginSettled(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (*sql.Tx, error) {
	if settlements[0].Token != "" {
		s.claims.RLock()
		defer s.claims.RUnlock()
	}
	return try(ctx, s, "settle a handled row of table", func() (*sql.Tx, error) {
		began := s.frontier.before()
		tx, err := s.db.BeginTx(ctx, s.traits.Tx)
		if err != nil {
			return nil, err
		}
		settled, xid, err := s.settle(ctx, tx, name, keep, settlements, settlements)
		if xid != 0 {
			s.frontier.wrote(xid, began)
		}
		if err == nil && settled.Changed != 1 {
			err = fmt.Errorf("row %d: %w", settlements[0].ID, storage.ErrFenced)
		}
		if err != nil {
			_ = tx.Rollback()
		}
		return tx, err
	})
}

// handling has the claimed rows whose handlers run.
type handling struct {
	mu  sync.Mutex
	ids map[int64]int // how many handlers each has: a second one waits, and is refused
}

func (h *handling) add(id int64, count int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[int64]int{}
	}
	if h.ids[id] += count; h.ids[id] == 0 {
		delete(h.ids, id)
	}
}

// split tells rows that are being handled from others.
func (h *handling) split(ids []int64) (handled, others []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.ids[id] > 0 {
			handled = append(handled, id)
		} else {
			others = append(others, id)
		}
	}
	return handled, others
}

// purges remember where the last purge ended, by the database's clock.
type purges struct {
	mu    sync.Mutex // held by a purge
	since time.Time
	anew  time.Time // when since is forgotten
}

// purgeAnewEvery is how often a purge begins with the oldest done row again: one
// whose transaction took longer than the retention was passed over.
const purgeAnewEvery = 5 * time.Minute

// Purge implements [storage.Store]. It counts done rows.
func (s *Store) Purge(ctx context.Context, retention time.Duration, limit int) (int, error) {
	s.purges.mu.Lock()
	defer s.purges.mu.Unlock()
	if now := time.Now(); !now.Before(s.purges.anew) {
		s.purges.since, s.purges.anew = time.Time{}, now.Add(purgeAnewEvery)
	}
	return write(ctx, s, "purge table", func() (int, uint64, error) {
		purged, until, err := s.backend.Purge(ctx, retention, limit, s.purges.since)
		if !until.IsZero() {
			s.purges.since = until
		}
		if err == nil {
			err = backend.InTx(ctx, s.db, s.traits.Tx, []backend.Query{s.traits.Queries.PurgeRelays}, nil)
		}
		return purged, 0, err
	})
}
