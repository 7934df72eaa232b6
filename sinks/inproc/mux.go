package inproc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// Mux chooses a handler by a message's topic. Its zero value has no handlers;
// [Mux.Serve] is the [Handler] to make a sink of:
//
//	sink := inproc.Func(mux.Serve)
//
// A message of a topic without a handler waits, uncharged, until a process has
// one, and holds back its key meanwhile; the relay tells of the topic as of one
// without a route. So a deployment that goes process by process parks nothing. It
// is handed over again after about a quarter of the time that it has waited, at
// least a second and at most a minute.
//
// Its methods may be called concurrently.
type Mux struct {
	// ParkUnknownTopics parks such messages at once, as unroutable. It is set
	// before Serve is called.
	ParkUnknownTopics bool

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

// Serve calls the handler of the message's topic, if there is one.
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
	wait := min(max(time.Since(message.CreatedAt)/4, time.Second), time.Minute)
	wait -= time.Duration(rand.Int64N(int64(wait / 4))) // they shall not all come back at once
	return RetryAfter(judged(sinks.Unsent, sinks.ReasonUnroutable, noHandler(message)), wait)
}

func noHandler(m sinks.Message) error {
	return fmt.Errorf("no handler for topic %q in this process", m.Topic)
}
