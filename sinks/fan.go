package sinks

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Fan implements Send for a sink that has a function to deliver one message. It
// delivers messages of different keys concurrently, and messages of the same key one
// at a time and in order. Its outcomes satisfy [OrderPrefix]:
//
//   - If a message is not delivered, Fan doesn't send the later messages with its
//     key. Their outcome is [Unsent].
//   - Once the outcome of a message is [Unavailable], Fan doesn't begin to deliver
//     any other message of the batch.
//   - Fan doesn't begin to deliver a message if the context has ended, or will probably
//     end before the message is delivered. To estimate the duration of a delivery, SendEach
//     uses the time limit of a message, and Send uses its longest delivery so far.
type Fan struct {
	slots chan struct{}
}

// NewFan returns a Fan. All its Sends together make at most limit concurrent calls to
// the function. A limit below 1 counts as 1. With a limit of 1, messages are delivered in
// the order of the batch.
func NewFan(limit int) *Fan {
	return &Fan{slots: make(chan struct{}, max(limit, 1))}
}

// Send delivers the messages of a batch with the given function and returns their
// outcomes. Send waits for running calls to the function, so the function must
// return soon after its context has ended. Send may be called concurrently.
func (f *Fan) Send(ctx context.Context, batch []Message, deliver func(context.Context, Message) Outcome) []Outcome {
	return f.SendEach(ctx, 0, batch, deliver)
}

// SendEach is like Send, but limits each call to the function to the given duration. See
// [OneByOne].
func (f *Fan) SendEach(ctx context.Context, each time.Duration, batch []Message, deliver func(context.Context, Message) Outcome) []Outcome {
	r := &fanRun{fan: f, batch: batch, each: each, deliver: deliver, outcomes: make([]Outcome, len(batch))}
	if cap(f.slots) == 1 {
		r.inOrder(ctx)
	} else {
		r.byKey(ctx)
	}
	return r.outcomes
}

// fanRun is the state of one Send.
type fanRun struct {
	fan      *Fan
	batch    []Message
	each     time.Duration // time limit of each message; 0: only the context limits the time
	outcomes []Outcome
	deliver  func(context.Context, Message) Outcome

	down    atomic.Bool  // the outcome of a message was Unavailable
	slowest atomic.Int64 // duration of the slowest call so far, in nanoseconds
}

func (r *fanRun) inOrder(ctx context.Context) {
	var stopped map[string]bool // keys with a message that was not delivered
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

// byKey distributes chains to workers. A chain has the messages of one key.
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

// chainsOf returns the indexes of the batch's messages, grouped by key and in order. Each
// message without a key is a chain of its own.
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

// one delivers the message at index i and stores its outcome. If the message must not be
// sent, one only stores the outcome.
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
	case ctx.Err() != nil, bounded && deadline.Sub(start) < needs: // the call would probably not finish in time
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
		r.slowest.Store(took) // a concurrent call may store a smaller value, but an estimate is enough
	}
	if r.outcomes[i].Result == Unavailable {
		r.down.Store(true)
	}
}
