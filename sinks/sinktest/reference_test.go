package sinktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

const referenceSecret = "p4ssword"

// destination is an in-memory destination that supports every field of a Harness.
type destination struct {
	mu      sync.Mutex
	broken  bool
	answers map[string]sinks.Result
	arrived []outbox.Message
	reached chan struct{} // not nil while stalled; closed when a message has arrived
	release chan struct{}

	// change is how a mutant changes arriving messages. Nil changes nothing.
	change func(outbox.Message) []outbox.Message
}

// astrayTopic is the topic of messages to a destination that doesn't exist.
const astrayTopic = "astray"

var errDown = errors.New("the destination is down")

// take is how the destination handles a message.
func (d *destination) take(ctx context.Context, m outbox.Message) sinks.Outcome {
	if stalled := d.stalled(); stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
			return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, ctx.Err().Error())
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch answer := d.answers[m.ID]; {
	case m.Topic == astrayTopic:
		return sinks.Postpone(sinks.ReasonUnroutable, "nothing takes it", time.Second)
	case d.broken:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, errDown.Error())
	case answer == sinks.Reject:
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "the destination refuses it")
	case d.answers != nil && answer == sinks.Retry && d.failing(m.ID):
		return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "the destination failed")
	}
	d.arrive(m)
	return sinks.Ok("here")
}

func (d *destination) arrive(m outbox.Message) {
	m = clone([]sinks.Message{{Message: m}})[0].Message
	if d.change == nil {
		d.arrived = append(d.arrived, m)
		return
	}
	d.arrived = append(d.arrived, d.change(m)...)
}

func (d *destination) failing(id string) bool { _, ok := d.answers[id]; return ok }

// stalled records that a message has arrived, and returns the channel to wait for.
func (d *destination) stalled() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reached != nil {
		close(d.reached)
		d.reached = nil
	}
	return d.release
}

func (d *destination) stall() (<-chan struct{}, func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reached, release := make(chan struct{}), make(chan struct{})
	d.reached, d.release = reached, release
	return reached, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.release = nil
		close(release)
	}
}

func (d *destination) received() []outbox.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.arrived)
}

func (d *destination) setBroken(broken bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = broken
}

func (d *destination) answer(id string, result sinks.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answers == nil {
		d.answers = map[string]sinks.Result{}
	}
	if d.answers[id] = result; result == sinks.Delivered {
		delete(d.answers, id)
	}
}

// reference is a correct sink, for each of the three orders.
type reference struct {
	to      *destination
	promise sinks.Order
	limits  sinks.Limits
	fan     *sinks.Fan
}

func (r *reference) Order() sinks.Order { return r.promise }

func (r *reference) Limits() sinks.Limits { return r.limits }

func (r *reference) Open(context.Context) error {
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	if r.to.broken {
		return errDown
	}
	return nil
}

func (r *reference) Close(context.Context) error { return nil }

func (r *reference) Renew(sinks.Sink) {} // there is no secret

func (r *reference) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if r.promise == sinks.OrderAtomic {
		return r.whole(ctx, batch)
	}
	return r.fan.Send(ctx, batch, func(ctx context.Context, m sinks.Message) sinks.Outcome {
		return r.to.take(ctx, m.Message)
	})
}

// whole removes a batch from the destination if one of its messages was not delivered.
func (r *reference) whole(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))
	}
	r.to.mu.Lock()
	for i, m := range batch {
		if m.Topic == astrayTopic || r.to.failing(m.ID) || r.to.broken || r.to.release != nil {
			r.to.mu.Unlock()
			outcomes := sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, ""))
			outcomes[i] = r.to.take(ctx, m.Message)
			return outcomes
		}
	}
	defer r.to.mu.Unlock()
	for _, m := range batch {
		r.to.arrive(m.Message)
	}
	return sinks.All(len(batch), sinks.Ok("here"))
}

// fullHarness returns a reference sink with all fields of a Harness.
func fullHarness(promise sinks.Order) (Harness, *reference) {
	d := &destination{}
	sink := &reference{to: d, promise: promise, fan: sinks.NewFan(4), limits: sinks.Limits{Messages: 40}}
	return Harness{
		Sink: sink, Received: d.received,
		Break: func() { d.setBroken(true) }, Repair: func() { d.setBroken(false) },
		Stall: d.stall, Answer: d.answer, Secrets: []string{referenceSecret},
		Astray: func(m *sinks.Message) { m.Topic = astrayTopic },
	}, sink
}

func TestReferencePasses(t *testing.T) {
	t.Parallel()
	for name, promise := range map[string]sinks.Order{"none": sinks.OrderNone, "prefix": sinks.OrderPrefix, "atomic": sinks.OrderAtomic} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, func(testing.TB) Harness {
				h, _ := fullHarness(promise)
				if promise == sinks.OrderAtomic {
					h.Astray = nil // a batch has a single destination
				}
				return h
			})
		})
	}
}

// Checks that need a missing field are skipped, and only these.
func TestMissingHarnessFieldsSkipChecks(t *testing.T) {
	t.Parallel()
	skipped := 0
	for _, c := range checks {
		h, _ := fullHarness(sinks.OrderPrefix)
		verdict := record(c, Harness{Sink: h.Sink})
		if verdict.failed {
			t.Errorf("%s fails: %s", c.name, verdict.log)
		}
		if verdict.skipped {
			skipped++
		}
	}
	if skipped != 9 {
		t.Errorf("%d checks were skipped, want the 9 that look at or change the destination", skipped)
	}
}
