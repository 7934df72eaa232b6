package sinktest_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// mailbox is a destination that can be looked into.
type mailbox struct {
	mu       sync.Mutex
	messages []outbox.Message
}

func (b *mailbox) put(_ context.Context, m sinks.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Payload, m.Headers = slices.Clone(m.Payload), maps.Clone(m.Headers) // they are the relay's again after Send
	b.messages = append(b.messages, m.Message)
	return nil
}

func (b *mailbox) received() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.messages)
}

func harness(testing.TB) sinktest.Harness {
	var b mailbox
	return sinktest.Harness{Sink: inproc.Func(b.put), Received: b.received}
}

// A test of a package does no more than this. It prints nothing but what is
// wrong.
func ExampleRun() {
	_ = func(t *testing.T) { sinktest.Run(t, harness) }
}

func TestTheExample(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, harness)
}
