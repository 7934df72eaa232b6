package inproc

import (
	"context"
	"fmt"
	"sync"

	"github.com/rowrelay/rowrelay/sinks"
)

// Mux chooses a handler by a message's topic. Its zero value has no handlers;
// [Mux.Serve] is the [Handler] to make a sink of:
//
//	sink := inproc.Func(mux.Serve)
//
// Its methods may be called concurrently.
type Mux struct {
	mu       sync.RWMutex
	handlers map[string]Handler
}

// Handle lets a handler have the messages of a topic, which must be exactly
// this. Like http.ServeMux it panics where the topic is empty or has a handler
// already, and where the handler is nil.
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

// Serve calls the handler of the message's topic. A message of another topic is
// parked as unroutable; routes of the relay keep such topics away from the
// sink, if they should wait instead.
func (m *Mux) Serve(ctx context.Context, message sinks.Message) error {
	m.mu.RLock()
	handler, there := m.handlers[message.Topic]
	m.mu.RUnlock()
	if !there {
		return judged(sinks.Reject, sinks.ReasonUnroutable, fmt.Errorf("no handler for topic %q in this process", message.Topic))
	}
	return handler(ctx, message)
}
