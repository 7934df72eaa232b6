package relays

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// Arrivals is a sink that only reports each message's id.
type Arrivals struct {
	discard.Sink
	Tell func(id string)
}

// Send reports the batch's ids, and returns Delivered for all messages.
func (a Arrivals) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	for i := range batch {
		a.Tell(batch[i].ID)
	}
	return a.Sink.Send(ctx, batch)
}
