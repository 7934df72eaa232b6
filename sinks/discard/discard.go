// Package discard is a sink that discards every message and reports it as delivered.
// Use it to measure a relay, to try out routes, and for topics without consumers.
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

// New returns a sink that discards all messages.
func New() Sink { return Sink{} }

// Open does nothing.
func (Sink) Open(context.Context) error { return nil }

// Destination returns "discard".
func (Sink) Destination() string { return "discard" }

// Send reports all messages as delivered, unless the context has ended.
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

// Kind describes the sink for a registry: the kind "discard" and the URL "discard:".
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "discard",
		Summary: "Accepts every message and discards it.",
		Schemes: []string{"discard"},
		FromURL: settings.NothingFromURL,
		New:     func(settings.Values) (sinks.Sink, error) { return New(), nil },
	}
}
