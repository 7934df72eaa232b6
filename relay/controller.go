package relay

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// controlInterval is how often what is in force is asked for: a pause is to be heard within a
// second, with the time of the question itself.
const controlInterval = 700 * time.Millisecond

// controller asks what is in force, and has a sink paused for all relays whose breaker has tripped.
type controller struct {
	base    *base
	trips   chan storage.Control            // pauses that tripped breakers want
	results chan<- func()                   // the loop calls each
	heard   func(inForce []storage.Control) // called in the loop at first, and when it has changed
}

// work asks until the context ends. Nothing is read or sent before the first answer; where there is none later, the last one holds.
func (c *controller) work(ctx context.Context) {
	var last, wanted []storage.Control // wanted: pauses that tripped breakers want, and that aren't in force yet
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

// pauseTripped has the sinks whose breakers have tripped paused for all relays. It returns the pauses that it couldn't write, to be
// tried again. Meanwhile this relay pauses the sink for itself.
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
