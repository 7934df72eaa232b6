package memstore

import (
	"context"
	"errors"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// LockRow locks a pending row, as another session's transaction would, and returns a function that
// unlocks it. The returned function may be called repeatedly. Reads still return the row, and claims skip it. A
// settlement that has to change the row waits until the row is unlocked, and keeps its lanes locked meanwhile.
func (db *DB) LockRow(id int64) (unlock func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	gone := make(chan struct{})
	db.locked[id] = gone
	return func() {
		db.mu.Lock()
		defer db.mu.Unlock()
		if db.locked[id] == gone {
			delete(db.locked, id)
			close(gone)
		}
	}
}

// Waiting returns the number of settlements that wait for a locked row.
func (db *DB) Waiting() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.waiting
}

// unlocked waits until no other session has locked any of the settlements' rows, and then calls the
// function `work` under the table's lock.
func (s *Store) unlocked(ctx context.Context, settlements []storage.Settlement, work func() error) error {
	for {
		var lock <-chan struct{}
		err := s.locked(ctx, OpSettle, func() error {
			if lock = s.db.lockedAmong(settlements); lock == nil {
				return work()
			}
			s.db.waiting++
			return errLocked
		})
		if lock == nil {
			return err
		}
		if err := s.await(ctx, lock); err != nil {
			return err
		}
	}
}

// errLocked means that a settlement has to wait for a locked row.
var errLocked = errors.New("another session has locked the row")

func (db *DB) lockedAmong(settlements []storage.Settlement) <-chan struct{} {
	for _, settlement := range settlements {
		if lock := db.locked[settlement.ID]; lock != nil {
			return lock
		}
	}
	return nil
}

func (s *Store) await(ctx context.Context, lock <-chan struct{}) error {
	defer func() {
		s.db.mu.Lock()
		defer s.db.mu.Unlock()
		s.db.waiting--
	}()
	select {
	case <-lock:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
