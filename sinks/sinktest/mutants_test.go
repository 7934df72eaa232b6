package sinktest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// bent is a sink with calls that a mutant has replaced.
type bent struct {
	*reference
	open  func(context.Context) error
	send  sender
	close func(context.Context) error
	renew func()

	forever chan struct{} // for calls that never return; closed at the end of the test
}

// end lets all calls return that still wait.
func (b *bent) end() {
	close(b.forever)
	b.to.mu.Lock()
	defer b.to.mu.Unlock()
	if b.to.release != nil { // the check has failed while the destination was stalled
		close(b.to.release)
	}
}

type sender func(ctx context.Context, batch []sinks.Message) []sinks.Outcome

func (b *bent) Open(ctx context.Context) error {
	if b.open != nil {
		return b.open(ctx)
	}
	return b.reference.Open(ctx)
}

func (b *bent) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if b.send != nil {
		return b.send(ctx, batch)
	}
	return b.reference.Send(ctx, batch)
}

func (b *bent) Renew(sinks.Sink) {
	if b.renew != nil {
		b.renew()
	}
	b.reference.Renew(b.reference)
}

func (b *bent) Close(ctx context.Context) error {
	if b.close != nil {
		return b.close(ctx)
	}
	return b.reference.Close(ctx)
}

// mutant is a mistake in a sink, and the check that must notice it.
type mutant struct {
	mistake string
	caught  string
	bend    func(b *bent)
}

// after changes the outcomes of the correct sink.
func after(change func(outcomes []sinks.Outcome) []sinks.Outcome) func(*bent) {
	return func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			return change(b.reference.Send(ctx, batch))
		}
	}
}

// turned replaces each outcome with one result.
func turned(from sinks.Result, to sinks.Outcome) func(*bent) {
	return after(func(outcomes []sinks.Outcome) []sinks.Outcome {
		for i, o := range outcomes {
			if o.Result == from {
				outcomes[i] = to
			}
		}
		return outcomes
	})
}

// Each check can fail, and each mutant is caught by its check.
func TestEveryMutantIsCaught(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(outcomeMutants, arrivalMutants, orderMutants, contextMutants, outageMutants, lifeMutants) {
		t.Run(m.caught+"/"+m.mistake, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := m.harness()
				verdict := record(checkNamed(t, m.caught), h)
				h.Sink.(*bent).end()
				if !verdict.failed {
					t.Errorf("%s doesn't notice that the sink %s:\n%s", m.caught, m.mistake, verdict.log)
				}
				t.Log(verdict.log)
			})
		})
	}
}

// A destination may be busy, for example on a slow machine.
func TestPostponedMessagesAreSentAgain(t *testing.T) {
	t.Parallel()
	sends := 0
	m := mutant{bend: func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			if sends++; sends > 3 {
				return b.reference.Send(ctx, batch)
			}
			outcomes := b.reference.Send(ctx, batch[:1])
			for range batch[1:] {
				outcomes = append(outcomes, sinks.Postpone(sinks.ReasonBusy, "later", time.Second))
			}
			return outcomes
		}
	}}
	h := m.harness()
	h.Patience = 5 * time.Minute // the check must pass on a slow machine, too
	if verdict := record(checkNamed(t, "OrderWithinKey"), h); verdict.failed || sends < 4 {
		t.Errorf("after %d sends: %s", sends, verdict.log)
	}
}

func (m mutant) harness() Harness {
	h, sink := fullHarness(sinks.OrderPrefix)
	b := &bent{reference: sink, forever: make(chan struct{})}
	m.bend(b)
	h.Sink = b
	h.Patience = 300 * time.Millisecond
	return h
}

func checkNamed(t *testing.T, name string) check {
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("unknown check %s", name)
	}
	return checks[i]
}

// A check that catches no mutant might check nothing.
func TestEveryCheckCatchesAMutant(t *testing.T) {
	t.Parallel()
	mutants := slices.Concat(outcomeMutants, arrivalMutants, orderMutants, contextMutants, outageMutants, lifeMutants)
	for _, c := range checks {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.caught == c.name }) {
			t.Errorf("no mutant is caught by %s", c.name)
		}
	}
}
