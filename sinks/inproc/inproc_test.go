package inproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// app is an application. Tests control what its handler returns.
type app struct {
	mu      sync.Mutex
	down    bool
	answers map[string]sinks.Result
	handled []outbox.Message
	reached chan struct{}
	release chan struct{}
}

func (a *app) handle(ctx context.Context, m sinks.Message) error {
	if release := a.stalled(); release != nil {
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return inproc.Unavailable(errors.New("the warehouse is down"))
	}
	switch answer, ok := a.answers[m.ID]; {
	case ok && answer == sinks.Reject:
		return inproc.Permanent(errors.New("no such article"))
	case ok && answer == sinks.Retry:
		return errors.New("out of paper")
	}
	m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
	a.handled = append(a.handled, m.Message)
	return nil
}

func (a *app) handleBatch(ctx context.Context, batch []sinks.Message) error {
	each := make(inproc.Errors, len(batch))
	for i, m := range batch {
		each[i] = a.handle(ctx, m)
	}
	return each
}

func (a *app) stalled() chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reached != nil {
		close(a.reached)
		a.reached = nil
	}
	return a.release
}

func (a *app) stall() (<-chan struct{}, func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	reached, release := make(chan struct{}), make(chan struct{})
	a.reached, a.release = reached, release
	return reached, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.release = nil
		close(release)
	}
}

func (a *app) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *app) harness(sink sinks.Sink) sinktest.Harness {
	return sinktest.Harness{
		Sink:   sink,
		Break:  func() { a.set(func() { a.down = true }) },
		Repair: func() { a.set(func() { a.down = false }) },
		Stall:  a.stall,
		Answer: func(id string, result sinks.Result) {
			a.set(func() {
				if a.answers[id] = result; result == sinks.Delivered {
					delete(a.answers, id)
				}
			})
		},
		Received: func() (got []outbox.Message) {
			a.set(func() { got = slices.Clone(a.handled) })
			return got
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	makers := map[string]func(a *app) sinks.Sink{
		"one at a time":     func(a *app) sinks.Sink { return inproc.Func(a.handle) },
		"several at a time": func(a *app) sinks.Sink { return inproc.New(a.handle, inproc.Options{Concurrency: 4, Batch: 7}) },
		"mux": func(a *app) sinks.Sink {
			var mux inproc.Mux
			mux.Handle("sinktest", a.handle)
			return inproc.Func(mux.Serve)
		},
		"batch": func(a *app) sinks.Sink { return inproc.Batch(a.handleBatch, inproc.BatchOptions{Concurrency: 3}) },
	}
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(testing.TB) sinktest.Harness {
				a := &app{answers: map[string]sinks.Result{}}
				return a.harness(make(a))
			})
		})
	}
}

var errBoom = errors.New("boom")

// Each error of a handler leads to an outcome.
func TestErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  error
		want sinks.Outcome
	}{
		"nil":                            {nil, sinks.Ok("")},
		"any":                            {errBoom, sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "boom")},
		"permanent":                      {inproc.Permanent(errBoom), sinks.Fail(sinks.Reject, sinks.ReasonRefused, "boom")},
		"permanent nil":                  {inproc.Permanent(nil), sinks.Ok("")},
		"wrapped permanent":              {fmt.Errorf("handle: %w", inproc.Permanent(errBoom)), sinks.Fail(sinks.Reject, sinks.ReasonRefused, "handle: boom")},
		"unavailable":                    {inproc.Unavailable(errBoom), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "boom")},
		"unavailable nil":                {inproc.Unavailable(nil), sinks.Ok("")},
		"permanent around unavailable":   {inproc.Permanent(inproc.Unavailable(errBoom)), sinks.Fail(sinks.Reject, sinks.ReasonRefused, "boom")},
		"retry after":                    {inproc.RetryAfter(errBoom, time.Minute), waiting(sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "boom"), time.Minute)},
		"retry after nil":                {inproc.RetryAfter(nil, time.Minute), sinks.Ok("")},
		"retry after, negative":          {inproc.RetryAfter(errBoom, -time.Minute), sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "boom")},
		"retry after around unavailable": {inproc.RetryAfter(inproc.Unavailable(errBoom), time.Minute), waiting(sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "boom"), time.Minute)},
		"retry after around permanent":   {inproc.RetryAfter(inproc.Permanent(errBoom), time.Minute), sinks.Fail(sinks.Reject, sinks.ReasonRefused, "boom")},
		"not UTF-8":                      {errors.New("\xff"), sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "\uFFFD")},
	}
	for name, test := range tests {
		sink := inproc.Func(func(context.Context, sinks.Message) error { return test.err })
		got := sink.Send(t.Context(), make([]sinks.Message, 1))[0]
		if got.Err != test.err {
			t.Errorf("%s: the outcome has the error %v, want the handler's own", name, got.Err)
		}
		if got = stored(got); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// stored returns an outcome without its error.
func stored(o sinks.Outcome) sinks.Outcome {
	o.Err = nil
	return o
}

func waiting(o sinks.Outcome, wait time.Duration) sinks.Outcome {
	o.RetryAfter = wait
	return o
}

func TestMarkedErrorsUnwrap(t *testing.T) {
	t.Parallel()
	for _, err := range []error{inproc.Permanent(errBoom), inproc.Unavailable(errBoom), inproc.RetryAfter(errBoom, 1)} {
		if !errors.Is(err, errBoom) || err.Error() != "boom" {
			t.Errorf("%T hides %v", err, errBoom)
		}
	}
}

func TestErrorAfterTheDeadlineIsATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sink := inproc.Func(func(ctx context.Context, _ sinks.Message) error {
			<-ctx.Done()
			return ctx.Err()
		})
		o := sink.Send(ctx, make([]sinks.Message, 1))[0]
		if o.Result != sinks.Retry || o.Reason != sinks.ReasonTimeout {
			t.Errorf("outcome %+v", o)
		}
		finished := inproc.Func(func(ctx context.Context, _ sinks.Message) error {
			time.Sleep(2 * time.Second) // passes immediately, in a synctest bubble
			return nil
		})
		late, cancelLate := context.WithTimeout(t.Context(), time.Second)
		defer cancelLate()
		if o := finished.Send(late, make([]sinks.Message, 1))[0]; o.Result != sinks.Delivered {
			t.Errorf("a handler that succeeded late: %+v", o)
		}
	})
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	for concurrency, want := range map[int]time.Duration{0: 6 * time.Second, 1: 6 * time.Second, 3: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			sink := inproc.New(func(context.Context, sinks.Message) error {
				time.Sleep(time.Second) // passes immediately, in a synctest bubble
				return nil
			}, inproc.Options{Concurrency: concurrency})
			sink.Send(t.Context(), make([]sinks.Message, 6))
			if took := time.Since(start); took != want {
				t.Errorf("concurrency %d took %v, want %v", concurrency, took, want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	noop := func(context.Context, sinks.Message) error { return nil }
	noops := func(context.Context, []sinks.Message) error { return nil }
	tests := []struct {
		sink sinks.Limited
		want sinks.Limits
	}{
		{inproc.Func(noop), sinks.Limits{Messages: inproc.DefaultBatch}},
		{inproc.New(noop, inproc.Options{Batch: 3}), sinks.Limits{Messages: 3}},
		{inproc.Batch(noops, inproc.BatchOptions{}), sinks.Limits{Messages: inproc.DefaultBatch, Workers: 1}},
		{inproc.Batch(noops, inproc.BatchOptions{Messages: 3, Concurrency: 2}), sinks.Limits{Messages: 3, Workers: 2}},
	}
	for i, test := range tests {
		if got := test.sink.Limits(); got != test.want {
			t.Errorf("sink %d: %+v, want %+v", i, got, test.want)
		}
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		handler inproc.Handler
		want    []string
	}{
		"a value": {panicking, []string{"panic: out of cheese\n", "inproc_test.deepest (inproc_test.go:", "inproc_test.panicking (inproc_test.go:"}},
		"runtime error": {func(_ context.Context, m sinks.Message) error {
			return fmt.Errorf("starts with %c", m.Payload[0])
		}, []string{"panic: runtime error: index out of range [0] with length 0\n", "inproc_test.TestPanics"}},
		"nil": {func(context.Context, sinks.Message) error { panic(nil) }, []string{"panic called with nil"}},
	}
	for name, test := range tests {
		o := inproc.Func(test.handler).Send(t.Context(), make([]sinks.Message, 1))[0]
		if o.Result != sinks.Retry || o.Reason != sinks.ReasonPanic {
			t.Errorf("%s: %+v", name, o)
		}
		for _, want := range test.want {
			if !strings.Contains(o.Detail, want) {
				t.Errorf("%s: the detail lacks %q:\n%s", name, want, o.Detail)
			}
		}
		if strings.Contains(o.Detail, "/inproc.recovered") || strings.Contains(o.Detail, "runtime.") || len(o.Detail) > 1000 {
			t.Errorf("%s: the detail has too much:\n%s", name, o.Detail)
		}
	}
}

func panicking(context.Context, sinks.Message) error {
	deepest()
	return nil
}

//go:noinline
func deepest() { panic("out of cheese") }

func TestPanicAffectsOnlyItsMessage(t *testing.T) {
	t.Parallel()
	batch := make([]sinks.Message, 3)
	batch[1].Key = "bad"
	for _, concurrency := range []int{1, 3} {
		sink := inproc.New(func(_ context.Context, m sinks.Message) error {
			if m.Key == "bad" {
				panic("bad")
			}
			return nil
		}, inproc.Options{Concurrency: concurrency})
		o := sink.Send(t.Context(), batch)
		if o[0].Result != sinks.Delivered || o[1].Reason != sinks.ReasonPanic || o[2].Result != sinks.Delivered {
			t.Errorf("outcomes %+v", o)
		}
	}
}

// relay.New refuses a nil sink: see internal/libraries.
func TestNilHandlerMakesNilSink(t *testing.T) {
	t.Parallel()
	if inproc.Func(nil) != nil || inproc.Batch(nil, inproc.BatchOptions{}) != nil || inproc.Tx(nil) != nil ||
		inproc.JSON[int](nil) != nil || inproc.JSONTx[int](nil) != nil || inproc.Wrap(nil) != nil {
		t.Error("a nil handler made a sink")
	}
}

func TestWrapKeepsTheOrder(t *testing.T) {
	t.Parallel()
	var said []string
	says := func(name string) inproc.Middleware {
		return func(next inproc.Handler) inproc.Handler {
			return func(ctx context.Context, m sinks.Message) error {
				said = append(said, name)
				return next(ctx, m)
			}
		}
	}
	handler := func(context.Context, sinks.Message) error { said = append(said, "handler"); return errBoom }
	if err := inproc.Wrap(handler, says("first"), nil, says("second"))(t.Context(), sinks.Message{}); err != errBoom {
		t.Errorf("the error is %v", err)
	}
	if want := []string{"first", "second", "handler"}; !slices.Equal(said, want) {
		t.Errorf("called %q, want %q", said, want)
	}
}
