package sinks

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Fan makes the Send of a sink out of a function that delivers one message: it
// runs the function for several messages of a batch at once, but for one
// message of a key at a time and in their order. Its outcomes keep what
// [OrderPrefix] promises:
//
//   - after a message that was not delivered, the later ones of its key are
//     [Unsent];
//   - after one that found the destination [Unavailable], no other message of
//     the batch is begun;
//   - no message is begun once the context has ended, nor when less of its time
//     remains than a message may take, or, with Send, than the slowest message of
//     this Send has taken, so that a full batch of slow messages is not cut off in
//     the middle of some.
type Fan struct {
	slots chan struct{}
}

// NewFan returns a Fan that runs the function at most limit times at once, over
// all Sends together. The limit is at least 1; with 1 the messages of a batch
// are delivered in the batch's order.
func NewFan(limit int) *Fan {
	return &Fan{slots: make(chan struct{}, max(limit, 1))}
}

// Send calls deliver for the messages of a batch and returns their outcomes. It
// may be called concurrently. Deliver has to return soon after its context
// ends: Send waits for it.
func (f *Fan) Send(ctx context.Context, batch []Message, deliver func(context.Context, Message) Outcome) []Outcome {
	return f.SendEach(ctx, 0, batch, deliver)
}

// SendEach is Send that calls deliver with a context of its own for each message, which ends
// after the time each: see [OneByOne].
func (f *Fan) SendEach(ctx context.Context, each time.Duration, batch []Message, deliver func(context.Context, Message) Outcome) []Outcome {
	r := &fanRun{fan: f, batch: batch, each: each, deliver: deliver, outcomes: make([]Outcome, len(batch))}
	if cap(f.slots) == 1 {
		r.inOrder(ctx)
	} else {
		r.byKey(ctx)
	}
	return r.outcomes
}

// fanRun is one Send under way.
type fanRun struct {
	fan      *Fan
	batch    []Message
	each     time.Duration // that a message may take; 0: what is left of the context
	outcomes []Outcome
	deliver  func(context.Context, Message) Outcome

	down    atomic.Bool  // a message found the destination unavailable
	slowest atomic.Int64 // of the calls so far, in nanoseconds
}

func (r *fanRun) inOrder(ctx context.Context) {
	var stopped map[string]bool // keys that must not go on; mostly none
	for i := range r.batch {
		key := r.batch[i].Key
		if stopped[key] {
			r.outcomes[i] = Blocked()
			continue
		}
		r.one(ctx, i)
		if key != "" && r.outcomes[i].Result != Delivered {
			if stopped == nil {
				stopped = map[string]bool{}
			}
			stopped[key] = true
		}
	}
}

// byKey deals out chains, each the messages of one key, to workers.
func (r *fanRun) byKey(ctx context.Context) {
	chains := chainsOf(r.batch)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(cap(r.fan.slots), len(chains)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(chains)); i = next.Add(1) - 1 {
				r.chain(ctx, chains[i])
			}
		})
	}
	workers.Wait()
}

func (r *fanRun) chain(ctx context.Context, chain []int) {
	for n, i := range chain {
		r.one(ctx, i)
		if r.outcomes[i].Result == Delivered {
			continue
		}
		for _, later := range chain[n+1:] {
			r.outcomes[later] = Blocked()
		}
		return
	}
}

// chainsOf returns the batch's indexes grouped by key, in order. A message
// without a key is a chain of its own.
func chainsOf(batch []Message) [][]int {
	chains, ofKey := make([][]int, 0, len(batch)), map[string]int{}
	for i := range batch {
		key := batch[i].Key
		if at, known := ofKey[key]; known && key != "" {
			chains[at] = append(chains[at], i)
			continue
		}
		ofKey[key] = len(chains)
		chains = append(chains, []int{i})
	}
	return chains
}

// one delivers the message at i, or notes why it is not begun.
func (r *fanRun) one(ctx context.Context, i int) {
	select {
	case r.fan.slots <- struct{}{}:
		defer func() { <-r.fan.slots }()
	case <-ctx.Done():
	}
	start := time.Now()
	deadline, bounded := ctx.Deadline()
	needs := r.each
	if needs == 0 {
		needs = time.Duration(r.slowest.Load())
	}
	switch {
	case r.down.Load():
		r.outcomes[i] = Blocked()
		return
	case ctx.Err() != nil, bounded && deadline.Sub(start) < needs: // it would probably not end in time
		r.outcomes[i] = Cancelled()
		return
	}
	if r.each > 0 {
		own, cancel := context.WithDeadline(ctx, start.Add(r.each))
		defer cancel()
		ctx = own
	}
	r.outcomes[i] = r.deliver(ctx, r.batch[i])
	if took := int64(time.Since(start)); took > r.slowest.Load() {
		r.slowest.Store(took) // a lost race costs a little accuracy
	}
	if r.outcomes[i].Result == Unavailable {
		r.down.Store(true)
	}
}
