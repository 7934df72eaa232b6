package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Controls implements [storage.Controller].
func (s *Store) Controls(ctx context.Context) ([]storage.Control, error) {
	return try(ctx, s, "read the controls of table", func() ([]storage.Control, error) {
		return backend.ReadControls(ctx, s.db, s.capabilities.Statements)
	})
}

// SetControl implements [storage.Controller].
func (s *Store) SetControl(ctx context.Context, control storage.Control, lasts time.Duration) error {
	if err := control.Validate(); err != nil {
		return err
	}
	_, err := write(ctx, s, "control "+control.String()+" of table", func() (any, uint64, error) {
		return nil, 0, backend.InTx(ctx, s.db, s.capabilities.Tx, s.capabilities.Statements.Setting(control, lasts), func(tx *sql.Tx) error {
			return s.logControl(ctx, tx, control.Set(lasts))
		})
	})
	return err
}

// LiftControl implements [storage.Controller].
func (s *Store) LiftControl(ctx context.Context, control storage.Control) (bool, error) {
	return write(ctx, s, "lift control "+control.String()+" of table", func() (was bool, _ uint64, err error) {
		err = backend.InTx(ctx, s.db, s.capabilities.Tx, nil, func(tx *sql.Tx) error {
			lifted, err := backend.Exec(ctx, tx, s.capabilities.Statements.Lifting(control)...)
			if was = lifted > 0; err != nil || !was {
				return err
			}
			return s.logControl(ctx, tx, control.Lifted())
		})
		return was, 0, err
	})
}

// logControl logs the action that sets or lifts a control, with a count of 1 change.
func (s *Store) logControl(ctx context.Context, tx *sql.Tx, action storage.Action) error {
	statements, id := s.capabilities.Statements, outbox.NewID()
	_, err := backend.Exec(ctx, tx, statements.Beginning(id, action.Fits()), statements.Ending(id, 1))
	return err
}

// BeginAction implements [storage.Controller].
func (s *Store) BeginAction(ctx context.Context, action storage.Action) (string, error) {
	id := outbox.NewID()
	return id, s.changeLog(ctx, func() backend.Query { return s.capabilities.Statements.Beginning(id, action.Fits()) })
}

// EndAction implements [storage.Controller].
func (s *Store) EndAction(ctx context.Context, id string, changed int64) error {
	return s.changeLog(ctx, func() backend.Query { return s.capabilities.Statements.Ending(id, changed) })
}

// changeLog writes to the log of actions. It calls the function `query` only if Open made the store, because an empty Store
// has no statements.
func (s *Store) changeLog(ctx context.Context, query func() backend.Query) error {
	_, err := write(ctx, s, "write the log of actions of table", func() (any, uint64, error) {
		return nil, 0, backend.InTx(ctx, s.db, s.capabilities.Tx, nil, func(tx *sql.Tx) error {
			_, err := backend.Exec(ctx, tx, query()) // ignore the number of affected rows: MySQL reports 0 if the row already has the same count
			return err
		})
	})
	return err
}

// Actions implements [storage.Controller].
func (s *Store) Actions(ctx context.Context, limit int) ([]storage.Action, error) {
	return try(ctx, s, "read the log of actions of table", func() ([]storage.Action, error) {
		return backend.ReadActions(ctx, s.db, s.capabilities.Statements, limit)
	})
}
