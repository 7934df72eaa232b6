package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/rowrelay/rowrelay/relay"
)

// HandleTx implements [relay.TxStore].
func (s *Store) HandleTx(ctx context.Context, name string, keep bool, done relay.Settlement, handler func(context.Context, *sql.Tx) error) error {
	settlements, err := inOrder([]relay.Settlement{done})
	if err != nil {
		return err
	}
	finish, err := s.turn(ctx)
	if err != nil {
		return err
	}
	defer finish()
	defer s.handling.begin(done)()
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

// beginSettled returns a transaction that has marked the row.
func (s *Store) beginSettled(ctx context.Context, name string, keep bool, settlements []relay.Settlement) (tx *sql.Tx, err error) {
	defer s.settlingClaims(settlements[0])()
	err = s.try(ctx, "settle a handled row of table", func() error {
		tx, err = s.db.BeginTx(ctx, s.traits.Tx)
		if err != nil {
			return err
		}
		settled, err := s.settle(ctx, tx, name, keep, settlements, settlements)
		if err == nil && settled.Changed != 1 {
			err = fmt.Errorf("row %d: %w", settlements[0].ID, relay.ErrFenced)
		}
		if err != nil {
			_ = tx.Rollback()
		}
		return err
	})
	return tx, err
}

// handling has the claimed rows whose handlers run.
type handling struct {
	mu  sync.Mutex
	ids map[int64]int // how many handlers each has: a second one waits, and is refused
}

func (h *handling) begin(done relay.Settlement) (end func()) {
	if done.Token == "" {
		return func() {}
	}
	h.add(done.ID, 1)
	return func() { h.add(done.ID, -1) }
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
