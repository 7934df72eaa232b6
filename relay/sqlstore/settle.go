package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Settling. Settle writes a batch of settlements in one transaction, in the order of lanes and ids. HandleTx runs a handler in the
// transaction that settles the handler's row. Purge deletes done rows after the retention.

// Settle implements [storage.Store]. A batch has either only rows of leased lanes or only claimed rows.
func (s *Store) Settle(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
	if len(settlements) == 0 {
		return storage.Settled{}, nil
	}
	ordered, err := inOrder(settlements)
	if err != nil {
		return storage.Settled{}, err
	}
	if ordered[0].Token != "" { // make Extend wait for this settlement
		s.claims.RLock()
		defer s.claims.RUnlock()
	}
	return write(ctx, s, "settle rows of table", func() (storage.Settled, uint64, error) {
		logged, err := s.withLogs(ctx, ordered)
		if err != nil {
			return storage.Settled{}, 0, err
		}
		return s.settle(ctx, nil, name, keep, logged, settlements)
	})
}

// withLogs reads the logs of failed attempts that the rows already have, and returns settlements whose Failed has the logs' attempts
// followed by the new ones, so that the backend can write each log as a whole. Until this settlement commits, no other relay may settle
// these rows, so their logs can't change after withLogs has read them. If no attempt failed, withLogs reads nothing and returns its
// argument.
func (s *Store) withLogs(ctx context.Context, ordered []storage.Settlement) ([]storage.Settlement, error) {
	failed := func(t *storage.Settlement) bool {
		return len(t.Failed) > 0 && t.State != storage.StateDone && t.State != storage.StateDiscarded
	}
	var rows []storage.RowID // rows that may have a log: held rows, and claimed rows, which may have been in the held table before
	some := false
	for i := range ordered {
		some = some || len(ordered[i].Failed) > 0
		if t := &ordered[i]; failed(t) && (t.Deferred || t.Token != "") {
			rows = append(rows, storage.RowID{Lane: t.Lane, ID: t.ID})
		}
	}
	if !some {
		return ordered, nil
	}
	logs := map[backend.LogOf]storage.AttemptLog{}
	if len(rows) > 0 {
		var err error
		if logs, err = backend.ReadAttemptLogs(ctx, s.db, s.backend.AttemptLogs(rows, ordered[0].Token == "")); err != nil {
			return nil, err
		}
	}
	logged := slices.Clone(ordered)
	for i := range logged {
		t := &logged[i]
		if !failed(t) {
			t.Failed = nil
			continue
		}
		of := backend.LogOf{RowID: storage.RowID{Lane: t.Lane, ID: t.ID}, MessageID: strings.ToLower(t.MessageID), Sinks: t.Sinks}
		t.Failed = logs[of].With(t.Failed...)
	}
	return logged, nil
}

// settle writes the settlements of its argument `ordered`, one for each row, usually in one call of the backend. Its last argument is
// the whole batch, which may have several settlements of a row. The result counts all settlements of the batch. If tx is nil, the
// backend uses its own transaction.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, name string, keep bool, ordered, settlements []storage.Settlement) (settled storage.Settled, xid uint64, err error) {
	apart := false
	for i := range ordered { // by index, because copying a settlement is expensive
		t := &ordered[i]
		apart = apart || t.Left != "" || t.State == storage.StateDiscarded || backend.NamesSinks(t)
	}
	settle := s.backend.Settle
	if apart {
		settle = s.settleApart
	}
	found, err := settle(ctx, tx, name, keep, ordered)
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

// alike is the key by which [Store.settleApart] groups settlements; one call of the backend writes a group. The key has the kind of the
// settlements. If the settlements are for all remaining sinks of pending rows that name sinks, the key also has these sinks, because the
// backend checks that the rows still name them. Most rows name no sinks and don't need this check.
type alike struct {
	kind  int
	sinks string
}

const (
	forSome   = iota // settlements for some of the rows' sinks
	forAll           // settlements for all remaining sinks, so the rows are moved
	discarded        // settlements that delete rows: the backend is called with StateDone and keep=false
)

// settleApart settles rows of different kinds in one transaction, with one call of the backend for each group.
func (s *Store) settleApart(ctx context.Context, tx *sql.Tx, name string, keep bool, ordered []storage.Settlement) (settled backend.Settled, err error) {
	groups := map[alike][]storage.Settlement{}
	for _, t := range ordered {
		of := alike{kind: forAll}
		switch {
		case t.Left != "":
			of.kind = forSome
		case t.State == storage.StateDiscarded:
			of.kind, t.State = discarded, storage.StateDone
		}
		if of.kind != forSome && backend.NamesSinks(&t) {
			of.sinks = t.Sinks
		}
		groups[of] = append(groups[of], t)
	}
	settled.Held = map[storage.Lease]bool{}
	work := func(tx *sql.Tx) error {
		inTurn := func(a, b alike) int { return cmp.Or(a.kind-b.kind, cmp.Compare(a.sinks, b.sinks)) }
		for _, of := range slices.SortedFunc(maps.Keys(groups), inTurn) {
			settle := s.backend.Settle
			if of.kind == forSome {
				settle = s.backend.SettleParts
			}
			more, err := settle(ctx, tx, name, keep && of.kind != discarded, groups[of])
			if err != nil {
				return err
			}
			settled.Add(more)
		}
		return nil
	}
	if tx != nil || len(groups) == 1 && ordered[0].Left == "" {
		err = work(tx)
	} else {
		err = backend.InTx(ctx, s.db, s.capabilities.Tx, nil, work)
	}
	return settled, err
}

// Parallelism implements [storage.Store]. If the database allows one writer at a time, a relay runs only one call of Settle
// at a time. A single call settles the rows of all lanes, and these rows are adjacent in the file. If two calls divided the
// lanes, the rows of each call would be far apart.
func (s *Store) Parallelism() storage.Parallelism {
	if s.notMade() != nil {
		return storage.Parallelism{Claims: 1, Settles: 1}
	}
	if s.capabilities.Frontier == backend.OneWriter {
		return storage.Parallelism{Claims: s.capabilities.Claims, Settles: 1}
	}
	return storage.Parallelism{Claims: s.capabilities.Claims, Settles: 2}
}

// inOrder checks the settlements, and returns one for each row in the order of lanes and ids, so that concurrent
// settlements lock rows in the same order. In texts that sinks returned, it replaces the characters that some
// databases can't store. It copies the settlements only if it has to, because they are large and numerous.
func inOrder(settlements []storage.Settlement) ([]storage.Settlement, error) {
	ready := true
	asIs := func(text string) bool { return text == "" || storable(text) == text }
	for i := range settlements {
		t := &settlements[i]
		if err := settleable(t, settlements[0].Token != ""); err != nil {
			return nil, err
		}
		ready = ready && (i == 0 || compareRows(&settlements[i-1], t) < 0) && asIs(t.Error) && asIs(t.Receipt)
	}
	if ready {
		return settlements, nil
	}
	places := make([]int32, len(settlements))
	for i := range places {
		places[i] = int32(i)
	}
	slices.SortFunc(places, func(i, j int32) int {
		return cmp.Or(compareRows(&settlements[i], &settlements[j]), cmp.Compare(i, j))
	})
	ordered := make([]storage.Settlement, 0, len(settlements))
	for _, at := range places {
		t := settlements[at]
		if n := len(ordered); n > 0 {
			last := &ordered[n-1]
			if compareRows(last, &t) == 0 && t.Fence == last.Fence && t.Token == last.Token {
				if t.Left+last.Left != "" {
					return nil, fmt.Errorf("settle row %d: the batch has several settlements of the row, and one is for some of its sinks", t.ID)
				}
				continue // the first settlement changes the row, and the others count as missing
			}
		}
		t.Error, t.Receipt = storable(t.Error), storable(t.Receipt)
		ordered = append(ordered, t)
	}
	return ordered, nil
}

// compareRows compares two settlements by their rows. It returns 0 if both are for the same row.
func compareRows(a, b *storage.Settlement) int {
	return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.ID, b.ID), cmp.Compare(a.MessageID, b.MessageID), cmp.Compare(amongRows(a), amongRows(b)))
}

// storable replaces invalid UTF-8 and NUL characters in a text, because some databases can't store them.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
}

// settleable returns an error for a settlement that can't be written. It checks the form of the message's id,
// because some statements have the id in their text, and not as an argument.
func settleable(t *storage.Settlement, byRows bool) error {
	switch {
	case t.Lane < 0 || t.Lane >= storage.Lanes:
		return fmt.Errorf("settle row %d: %w: lane %d does not exist", t.ID, storage.ErrInvalid, t.Lane)
	case byRows != (t.Token != ""):
		return fmt.Errorf("settle row %d: the batch mixes rows claimed by token with rows of leased lanes", t.ID)
	case !backend.IsMessageID(t.MessageID):
		return fmt.Errorf("settle row %d: %w: invalid message id %q", t.ID, storage.ErrInvalid, t.MessageID)
	case t.State == storage.StatePending && !byRows:
		return fmt.Errorf("settle row %d: the state pending requires a row that was claimed by rows", t.ID)
	case t.DeadLetter != nil && t.State != storage.StateError:
		return fmt.Errorf("settle row %d: a dead letter requires the state error", t.ID)
	case !slices.Contains(settledStates, t.State):
		return fmt.Errorf("settle row %d: invalid state %q", t.ID, t.State)
	case (t.For == "") != (t.Left == "") || t.Left != "" && t.Left == t.Sinks:
		return fmt.Errorf("settle row %d: invalid split: for %q, left %q, of sinks %q", t.ID, t.For, t.Left, t.Sinks)
	case t.Left != "" && byRows:
		return fmt.Errorf("settle row %d for %s: a message that is claimed by rows has only one sink", t.ID, t.For)
	}
	return nil
}

// amongRows returns a text that differs between the rows of a message: its pending row, and its held
// rows, which have different sinks.
func amongRows(t *storage.Settlement) string {
	if !t.Deferred {
		return ""
	}
	return "held for " + t.Sinks
}

// settledStates are the states that a settlement may write.
var settledStates = []storage.State{storage.StateDone, storage.StateRetry, storage.StateError, storage.StateDiscarded, storage.StateScheduled, storage.StatePending}

// HandleTx implements [storage.TxStore].
func (s *Store) HandleTx(ctx context.Context, name string, keep bool, done storage.Settlement, handler func(context.Context, *sql.Tx) error) error {
	settlements, err := inOrder([]storage.Settlement{done})
	if err != nil {
		return err
	}
	if s.capabilities.Frontier == backend.OneWriter {
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
		return fmt.Errorf("commit the transaction that handles row %d of table %s: %w", done.ID, s.table, err)
	}
	return nil
}

// beginSettled settles the row in a new transaction, and returns this transaction without
// committing it. Extend waits until the settlement has been written.
func (s *Store) beginSettled(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (*sql.Tx, error) {
	if settlements[0].Token != "" {
		s.claims.RLock()
		defer s.claims.RUnlock()
	}
	return try(ctx, s, "settle a handled row of table", func() (*sql.Tx, error) {
		began := s.frontier.before()
		tx, err := s.db.BeginTx(ctx, s.capabilities.Tx)
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

// handling has the ids of claimed rows whose handlers are running.
type handling struct {
	mu  sync.Mutex
	ids map[int64]int // the number of HandleTx calls for each id; a second call waits, and is fenced if the first one commits
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

// split separates the rows whose handlers are running from the other rows.
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

// purges records where the last purge ended.
type purges struct {
	mu      sync.Mutex // held by a purge
	since   time.Time  // by the database's clock: the next purge skips rows that finished before this time
	restart time.Time  // by this host's clock: the time at which the field `since` is reset
}

// purgeAllEvery is the interval at which a purge starts again at the oldest done row. On PostgreSQL, every other purge begins
// where the previous one ended, and misses a row if the transaction that settled it was open for longer than the retention. On
// other databases, every purge starts at the oldest row.
const purgeAllEvery = 5 * time.Minute

// Purge implements [storage.Store].
func (s *Store) Purge(ctx context.Context, retention time.Duration, limit int) (int, error) {
	if err := s.notMade(); err != nil {
		return 0, err
	}
	s.purges.mu.Lock()
	defer s.purges.mu.Unlock()
	if now := time.Now(); !now.Before(s.purges.restart) {
		s.purges.since, s.purges.restart = time.Time{}, now.Add(purgeAllEvery)
	}
	return write(ctx, s, "purge table", func() (int, uint64, error) {
		purged, until, err := s.backend.Purge(ctx, retention, limit, s.purges.since)
		if !until.IsZero() {
			s.purges.since = until
		}
		if err == nil {
			err = backend.InTx(ctx, s.db, s.capabilities.Tx, []backend.Query{s.capabilities.Queries.PurgeRelays}, nil)
		}
		return purged, 0, err
	})
}
