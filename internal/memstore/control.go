package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Controls implements [storage.Controller].
func (s *Store) Controls(ctx context.Context) (controls []storage.Control, err error) {
	err = s.do(ctx, OpControls, func() error {
		s.db.forgetEnded()
		controls = slices.Clone(s.db.controls)
		return nil
	})
	return controls, err
}

// forgetEnded removes the controls that have ended.
func (db *DB) forgetEnded() {
	db.controls = slices.DeleteFunc(db.controls, func(c storage.Control) bool { return !c.Ends.IsZero() && !c.Ends.After(db.now()) })
}

// lift removes a control, and reports whether it existed.
func (db *DB) lift(control storage.Control) bool {
	db.forgetEnded()
	before := len(db.controls)
	db.controls = slices.DeleteFunc(db.controls, func(c storage.Control) bool { return c.Kind == control.Kind && c.Name == control.Name })
	return len(db.controls) < before
}

// log appends an action to the log and returns its id.
func (db *DB) log(action storage.Action, changed int64) string {
	action = action.Fits()
	action.ID, action.At, action.Changed = outbox.NewID(), db.now(), changed
	db.actions = append(db.actions, action)
	return action.ID
}

// SetControl implements [storage.Controller].
func (s *Store) SetControl(ctx context.Context, control storage.Control, lasts time.Duration) error {
	if err := control.Validate(); err != nil {
		return err
	}
	return s.do(ctx, OpSetControl, func() error {
		s.db.lift(control)
		control.Since, control.Ends = s.db.now(), time.Time{}
		if lasts > 0 {
			control.Ends = s.db.now().Add(lasts)
		}
		s.db.controls = append(s.db.controls, control)
		slices.SortFunc(s.db.controls, func(a, b storage.Control) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
		s.db.log(control.Set(lasts), 1)
		return nil
	})
}

// LiftControl implements [storage.Controller].
func (s *Store) LiftControl(ctx context.Context, control storage.Control) (was bool, err error) {
	err = s.do(ctx, OpSetControl, func() error {
		if was = s.db.lift(control); was {
			s.db.log(control.Lifted(), 1)
		}
		return nil
	})
	return was, err
}

// BeginAction implements [storage.Controller].
func (s *Store) BeginAction(ctx context.Context, action storage.Action) (id string, err error) {
	err = s.do(ctx, OpAction, func() error {
		id = s.db.log(action, -1)
		return nil
	})
	return id, err
}

// EndAction implements [storage.Controller].
func (s *Store) EndAction(ctx context.Context, id string, changed int64) error {
	return s.do(ctx, OpAction, func() error {
		at := slices.IndexFunc(s.db.actions, func(a storage.Action) bool { return a.ID == id })
		if at < 0 {
			return fmt.Errorf("there is no action %s", id)
		}
		s.db.actions[at].Changed = changed
		return nil
	})
}

// Actions implements [storage.Controller].
func (s *Store) Actions(ctx context.Context, limit int) (actions []storage.Action, err error) {
	err = s.do(ctx, OpAction, func() error {
		actions = slices.Clone(s.db.actions)
		slices.Reverse(actions)
		actions = actions[:min(limit, len(actions))]
		return nil
	})
	return actions, err
}
