// Package discard is a sink that accepts every message and discards it: for
// measuring a relay, for trying out routes, and for topics without consumers. The
// messages count as delivered.
package discard

import (
	"context"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Sink accepts and discards all messages. The zero value is ready to use. Its
// methods may be called concurrently.
type Sink struct{}

var (
	_ sinks.Sink    = Sink{}
	_ sinks.Ordered = Sink{}
)

// New returns a sink that discards.
func New() Sink { return Sink{} }

// Open does nothing.
func (Sink) Open(context.Context) error { return nil }

// Destination returns "discard".
func (Sink) Destination() string { return "discard" }

// Send returns that all messages are delivered, unless the context has ended.
func (Sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Cancelled())
	}
	return sinks.All(len(batch), sinks.Ok(""))
}

// Close does nothing.
func (Sink) Close(context.Context) error { return nil }

// Order returns [sinks.OrderAtomic].
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
