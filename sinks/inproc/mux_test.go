package inproc_test

import (
	"context"
	"testing"
	"time"

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
	if o := outcomes[2]; o.Result != sinks.Unsent || o.Reason != sinks.ReasonUnroutable || o.Detail != `no handler for topic "orders.lost" in this process` {
		t.Errorf("unknown topic: %+v", o)
	}
}

// A message of an unknown topic waits for about a quarter of its age, or is parked
// if ParkUnknownTopics is set.
func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		park        bool
		age         time.Duration
		result      sinks.Result
		least, most time.Duration
	}{
		"just written":          {false, 0, sinks.Unsent, 750 * time.Millisecond, time.Second},
		"created in the future": {false, -time.Hour, sinks.Unsent, 750 * time.Millisecond, time.Second},
		"a minute old":          {false, time.Minute, sinks.Unsent, 11 * time.Second, 16 * time.Second},
		"a day old":             {false, 24 * time.Hour, sinks.Unsent, 45 * time.Second, time.Minute},
		"ParkUnknownTopics":     {true, 0, sinks.Reject, 0, 0},
	} {
		mux := inproc.Mux{ParkUnknownTopics: c.park}
		o := inproc.Func(mux.Serve).Send(t.Context(), []sinks.Message{{CreatedAt: time.Now().Add(-c.age)}})[0]
		if o.Result != c.result || o.Reason != sinks.ReasonUnroutable || o.RetryAfter < c.least || o.RetryAfter > c.most {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestHandlePanicsOnInvalidHandlers(t *testing.T) {
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
