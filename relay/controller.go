package relay

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// controlInterval is the time between two reads of the controls. It is short enough that a pause takes effect within a second,
// including the time of the query.
const controlInterval = 700 * time.Millisecond

// controller reads the controls. It also stores pauses for the sinks whose breakers have tripped, so that these pauses apply to
// all relays.
type controller struct {
	base    *base
	trips   chan storage.Control            // the pauses of tripped breakers
	results chan<- func()                   // functions that the loop calls
	heard   func(inForce []storage.Control) // called by the loop after the first read, and when the controls have changed
}

// work reads the controls until the context ends. Until the controls have been read once, the relay neither reads nor sends
// messages. If a later read of the controls fails, the last known controls stay in force.
func (c *controller) work(ctx context.Context) {
	var last, wanted []storage.Control // wanted: pauses of tripped breakers that are not in force yet
	for heard, more := false, true; more; more = sleep(ctx, controlInterval) {
		wanted = c.pauseTripped(ctx, wanted)
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, c.base.callTimeout)
		inForce, err := c.base.store.Controls(bounded)
		cancel()
		c.base.reached("controls", began, err)
		if err != nil {
			c.base.failed("controls", err)
			continue
		}
		wanted = slices.DeleteFunc(wanted, func(w storage.Control) bool {
			return slices.ContainsFunc(inForce, func(in storage.Control) bool { return in.Kind == w.Kind && in.Name == w.Name })
		})
		if heard && slices.Equal(inForce, last) {
			continue
		}
		heard, last = true, inForce
		select {
		case c.results <- func() { c.heard(inForce) }:
		case <-ctx.Done():
			return
		}
	}
}

// pauseTripped stores the pauses of tripped breakers. It returns the pauses that it couldn't store, so that they are tried
// again. Until a pause is stored, only this relay pauses the sink.
func (c *controller) pauseTripped(ctx context.Context, wanted []storage.Control) (left []storage.Control) {
	for len(c.trips) > 0 {
		wanted = append(wanted, <-c.trips)
	}
	store, ok := c.base.store.(storage.Controller)
	if !ok {
		return nil
	}
	for _, control := range wanted {
		bounded, cancel := context.WithTimeout(ctx, c.base.callTimeout)
		err := store.SetControl(bounded, control, 0)
		cancel()
		if err != nil {
			c.base.failed("controls", err)
			left = append(left, control)
		}
	}
	return left
}
