package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// A fuse. Where a sink refuses everything it is its trouble, and nothing is parked (trouble.go). Where
// it refuses most, with some delivered between, each refusal looks like a message's own fault: a
// login that has expired for one of two tenants has parked thousands in seconds. So a sink that
// parks many in a minute, and refuses more than it takes, is paused for all relays, by a control as an
// operator would set it, and stays so until one lifts it.

// fuse counts what became of a sink's messages within a minute.
type fuse struct {
	since              time.Time
	refused, delivered int // messages; those that were refused for the first time
	parked             int
	blown              bool // the sink is paused by it, and the control isn't known to be in force
}

// fuseTime is how long a fuse counts before it begins anew (batch.done).
const fuseTime = time.Minute

// blows counts a message that is about to be parked, and says that it must not be, as the sink's fuse has blown or an
// operator has paused the sink. A relay knows of its own messages alone. Of two or more relays each pauses the sink after half
// of the limit: with a smaller part, one key's bad messages, which all come to one relay, would pause the sink for all.
func (e *engine) blows(q *sinkQueue, outcome *sinks.Outcome) bool {
	limit := q.options.Fuse
	if limit < 0 || outcome.Reason == sinks.ReasonInvalid || outcome.Reason == sinks.ReasonCrash {
		return false // no sink has a part in it
	}
	f := &q.fuse
	if q.paused { // the message goes back, and is sent once more after the pause
		return true
	}
	if q.relays > 1 {
		limit = (limit + 1) / 2
	}
	if f.parked < limit || max(f.refused, f.parked) <= f.delivered {
		f.parked++
		return false
	}
	f.blown, q.paused = true, true
	reason := fmt.Sprintf("within a minute %d messages were parked, %d refused, and %d delivered; the last answer: %s", f.parked, f.refused, f.delivered, describe(*outcome))
	e.options.Logger.Error("relay: a fuse has blown: the sink refuses most of what it gets, and is paused until you resume it", "relay", e.options.Name, "sink", q.name,
		"parked", f.parked, "refused", f.refused, "delivered", f.delivered, "reason", string(outcome.Reason), "detail", loggable(outcome))
	e.fuses <- storage.Control{Kind: storage.PauseSink, Name: q.name, By: shorten("fuse of "+e.options.Name, 255), Reason: shorten(reason, 255)}
	return true
}

// pauseBlown has the sinks whose fuses have blown paused for all relays. It returns the pauses that it couldn't write, to be
// tried again. Meanwhile this relay pauses the sink for itself.
func (e *engine) pauseBlown(ctx context.Context, wanted []storage.Control) (left []storage.Control) {
	for len(e.fuses) > 0 {
		wanted = append(wanted, <-e.fuses)
	}
	controller, ok := e.store.(storage.Controller)
	if !ok {
		return nil
	}
	for _, control := range wanted {
		bounded, cancel := context.WithTimeout(ctx, e.callTimeout)
		err := controller.SetControl(bounded, control, 0)
		cancel()
		if err != nil {
			e.failed("controls", err)
			left = append(left, control)
		}
	}
	return left
}
