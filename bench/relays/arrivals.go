package relays

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// Arrivals is a sink that does nothing but tell of each message's id.
type Arrivals struct {
	discard.Sink
	Tell func(id string)
}

// Send tells of the batch, and calls it delivered.
func (a Arrivals) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	for i := range batch {
		a.Tell(batch[i].ID)
	}
	return a.Sink.Send(ctx, batch)
}
