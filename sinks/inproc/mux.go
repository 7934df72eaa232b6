package inproc

import (
	"context"
	"fmt"
	"sync"

	"github.com/rowrelay/rowrelay/sinks"
)

// Mux selects a handler by a message's topic. Its zero value has no handlers.
// [Mux.Serve] is the [Handler] for a sink:
//
//	sink := inproc.Func(mux.Serve)
//
// A message whose topic has no handler waits, without being charged an attempt, until a
// process has a handler for the topic. So a rolling deployment, during which old processes
// lack new handlers, parks no message. Later messages of its key wait too, and the relay
// reports the topic in the same way as a topic without a route. The wait before the next
// attempt is about a quarter of the message's age, at least about a second and at most a
// minute.
//
// A Mux's methods may be called concurrently.
type Mux struct {
	// ParkUnknownTopics parks messages of topics without a handler immediately, as
	// unroutable. Set it before Serve is called.
	ParkUnknownTopics bool

	mu       sync.RWMutex
	handlers map[string]Handler
}

// Handle registers the handler for a topic, which must match exactly. Like
// http.ServeMux, it panics if the topic is empty or already has a handler, or if
// the handler is nil.
func (m *Mux) Handle(topic string, handler Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if topic == "" || handler == nil {
		panic("inproc: Handle needs a topic and a handler")
	}
	if _, there := m.handlers[topic]; there {
		panic(fmt.Sprintf("inproc: topic %q has a handler already", topic))
	}
	if m.handlers == nil {
		m.handlers = map[string]Handler{}
	}
	m.handlers[topic] = handler
}

// Serve calls the handler of the message's topic. If the topic has no handler, the
// message waits or is parked; see [Mux].
func (m *Mux) Serve(ctx context.Context, message sinks.Message) error {
	m.mu.RLock()
	handler, there := m.handlers[message.Topic]
	m.mu.RUnlock()
	switch {
	case there:
		return handler(ctx, message)
	case m.ParkUnknownTopics:
		return judged(sinks.Reject, sinks.ReasonUnroutable, noHandler(message))
	}
	return RetryAfter(judged(sinks.Unsent, sinks.ReasonUnroutable, noHandler(message)), sinks.WaitByAge(message.CreatedAt))
}

func noHandler(m sinks.Message) error {
	return fmt.Errorf("no handler for topic %q in this process", m.Topic)
}
