package inproc_test

import (
	"context"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

func TestMux(t *testing.T) {
	t.Parallel()
	var got []string
	note := func(name string) inproc.Handler {
		return func(_ context.Context, m sinks.Message) error {
			got = append(got, name+" "+m.Topic)
			return nil
		}
	}
	var mux inproc.Mux
	mux.Handle("orders", note("first"))
	mux.Handle("orders.paid", note("second"))
	var batch []sinks.Message
	for _, topic := range []string{"orders", "orders.paid", "orders.lost"} {
		batch = append(batch, sinks.Message{Message: outbox.Message{Topic: topic}})
	}
	outcomes := inproc.Func(mux.Serve).Send(t.Context(), batch)
	if len(got) != 2 || got[0] != "first orders" || got[1] != "second orders.paid" {
		t.Errorf("called %q", got)
	}
	want := sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, `no handler for topic "orders.lost" in this process`)
	if outcomes[2] != want {
		t.Errorf("unknown topic: %+v", outcomes[2])
	}
}

func TestAnEmptyMuxKnowsNoTopic(t *testing.T) {
	t.Parallel()
	var mux inproc.Mux
	if o := inproc.Func(mux.Serve).Send(t.Context(), make([]sinks.Message, 1))[0]; o.Reason != sinks.ReasonUnroutable {
		t.Errorf("outcome %+v", o)
	}
}

func TestMuxRefuses(t *testing.T) {
	t.Parallel()
	noop := func(context.Context, sinks.Message) error { return nil }
	var mux inproc.Mux
	mux.Handle("orders", noop)
	for name, handle := range map[string]func(){
		"twice":       func() { mux.Handle("orders", noop) },
		"no topic":    func() { mux.Handle("", noop) },
		"nil handler": func() { mux.Handle("bills", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Handle returned", name)
				}
			}()
			handle()
		}()
	}
}
