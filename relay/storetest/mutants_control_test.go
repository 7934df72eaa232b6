package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

type onControl struct {
	Store
	controls func(ctx context.Context) ([]storage.Control, error)
	set      func(ctx context.Context, c storage.Control, lasts time.Duration) error
	lift     func(ctx context.Context, c storage.Control) (bool, error)
	actions  func(ctx context.Context, limit int) ([]storage.Action, error)
}

func (s onControl) Controls(ctx context.Context) ([]storage.Control, error) {
	if s.controls == nil {
		return s.Store.Controls(ctx)
	}
	return s.controls(ctx)
}

func (s onControl) SetControl(ctx context.Context, c storage.Control, lasts time.Duration) error {
	if s.set == nil {
		return s.Store.SetControl(ctx, c, lasts)
	}
	return s.set(ctx, c, lasts)
}

func (s onControl) LiftControl(ctx context.Context, c storage.Control) (bool, error) {
	if s.lift == nil {
		return s.Store.LiftControl(ctx, c)
	}
	return s.lift(ctx, c)
}

func (s onControl) Actions(ctx context.Context, limit int) ([]storage.Action, error) {
	if s.actions == nil {
		return s.Store.Actions(ctx, limit)
	}
	return s.actions(ctx, limit)
}

// controlMutants returns mutants of controls and of the log.
func controlMutants() []mutant {
	sets := func(mistake, found string, change func(c *storage.Control, lasts *time.Duration)) mutant {
		return mutant{mistake, []string{found}, func(s Store, _ *facts) Store {
			return onControl{Store: s, set: func(ctx context.Context, c storage.Control, lasts time.Duration) error {
				if err := c.Validate(); err != nil {
					return err
				}
				change(&c, &lasts)
				return s.SetControl(ctx, c, lasts)
			}}
		}}
	}
	return []mutant{
		sets("controls have no reason", "controls are kept", func(c *storage.Control, _ *time.Duration) { c.Reason = "" }),
		sets("controls have no author", "controls are kept", func(c *storage.Control, _ *time.Duration) { c.By = "" }),
		sets("names of controls are in lower case", "controls are kept", func(c *storage.Control, _ *time.Duration) { c.Name = strings.ToLower(c.Name) }),
		sets("controls never end", "controls end", func(_ *storage.Control, lasts *time.Duration) { *lasts = 0 }),
		{"a control doesn't replace another", []string{"controls are kept", "controls end"}, func(s Store, _ *facts) Store {
			return onControl{Store: s, set: func(ctx context.Context, c storage.Control, lasts time.Duration) error {
				there, err := s.Controls(ctx)
				if err != nil || slices.ContainsFunc(there, func(old storage.Control) bool { return old.Kind == c.Kind && old.Name == c.Name }) {
					return err
				}
				return s.SetControl(ctx, c, lasts)
			}}
		}},
		{"controls can't be lifted", []string{"controls are kept"}, func(s Store, _ *facts) Store {
			return onControl{Store: s, lift: func(context.Context, storage.Control) (bool, error) { return true, nil }}
		}},
		{"the log begins with the first action", []string{"actions are logged"}, func(s Store, _ *facts) Store {
			return onControl{Store: s, actions: func(ctx context.Context, limit int) ([]storage.Action, error) {
				actions, err := s.Actions(ctx, limit)
				slices.Reverse(actions)
				return actions, err
			}}
		}},
	}
}
