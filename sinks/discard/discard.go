// Package discard is a sink that takes every message and keeps none: for
// measuring a relay, for trying routes out, and for topics that nobody wants.
// What it takes counts as delivered.
package discard

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Sink takes everything. The zero value is ready; its methods may be called
// concurrently.
type Sink struct{}

var (
	_ sinks.Sink    = Sink{}
	_ sinks.Ordered = Sink{}
)

// New returns a sink that discards.
func New() Sink { return Sink{} }

// Open does nothing.
func (Sink) Open(context.Context) error { return nil }

// Destination is "discard".
func (Sink) Destination() string { return "discard" }

// Send calls the whole batch delivered, unless the context has ended.
func (Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Cancelled())
	}
	return sinks.All(len(batch), sinks.Ok(""))
}

// Close does nothing.
func (Sink) Close(context.Context) error { return nil }

// Order promises that a batch is taken whole.
func (Sink) Order() sinks.Order { return sinks.OrderAtomic }

// Kind describes the sink for a registry: the kind "discard", URL "discard:".
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "discard",
		Summary: "Takes every message and keeps none.",
		Schemes: []string{"discard"},
		FromURL: settings.NothingFromURL,
		New:     func(settings.Values) (sinks.Sink, error) { return New(), nil },
	}
}
