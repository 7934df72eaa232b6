package sinktest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// mailbox is a destination whose contents can be read.
type mailbox struct {
	mu       sync.Mutex
	messages []outbox.Message
}

func (b *mailbox) put(_ context.Context, m sinks.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.Payload, m.Headers = slices.Clone(m.Payload), maps.Clone(m.Headers) // the relay reuses them after Send
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

// The test of a sink contains only this call. It prints only what is wrong.
func ExampleRun() {
	_ = func(t *testing.T) { sinktest.Run(t, harness) }
}

// The suite reads the messages that have arrived, in order of arrival.
func ExampleHarness() {
	h := harness(nil)
	outcomes := h.Sink.Send(context.Background(), []sinks.Message{{Message: outbox.Message{ID: outbox.NewID(), Topic: "orders.paid"}}})
	fmt.Println(outcomes[0].Result, len(h.Received()), h.Received()[0].Topic)
	// Output:
	// delivered 1 orders.paid
}

func TestExampleMailboxPasses(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, harness)
}
