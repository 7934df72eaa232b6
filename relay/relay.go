// Package relay moves messages from their table to their sinks.
package relay

import (
	"context"
	"errors"
)

// Relay moves the messages of one table to its sinks.
type Relay struct {
	store   Store
	options Options
}

// New makes a relay over a store. It checks the options and reports all that
// is wrong with them at once; it doesn't touch the store.
func New(store Store, options Options) (*Relay, error) {
	return &Relay{store: store, options: options}, nil
}

// Run relays until the context ends, and then stops cleanly: it reads no more,
// lets the sends that are under way finish (for at most DrainTimeout), writes
// their outcomes back and gives up its lanes. It returns nil after a clean
// stop, or after a drain; an error if it couldn't start. Trouble on the way
// (a database or sink that is gone) is waited out, logged and observed. Run
// may be called once.
func (r *Relay) Run(ctx context.Context) error { return errors.New("not yet") }

// Abort skips the drain of a Run that is stopping (or stops it at once): sends
// under way are cancelled, what is known is settled. Safe to call at any time.
func (r *Relay) Abort() {}

// Wake makes the relay look for new messages now. It never blocks and may be
// called by anyone at any time; many calls at once are one look.
func (r *Relay) Wake() {}

// Healthy returns nil if the relay runs and its loop is alive (it looked for
// messages, successfully, within the last lease), or an error that says what
// is wrong.
func (r *Relay) Healthy() error { return errors.New("the relay was not started") }
