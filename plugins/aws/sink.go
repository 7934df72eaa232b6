package main

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// sink sends messages to queues or topics of one region.
type sink struct {
	to               settings.Template // the queue's URL or the topic's ARN
	queues           bool              // SQS, not SNS
	region, endpoint string
	slots            chan struct{} // semaphore: one slot for each request in flight
	http             aws.HTTPClient
	credentials      aws.CredentialsProvider // nil: the SDK's default chain of credential providers

	service service // set by Open
}

// Open gets the credentials and looks for the queue or topic, unless messages choose it.
func (s *sink) Open(ctx context.Context) error {
	made, credentials, err := s.connect(ctx)
	if err != nil {
		return &sinks.OpenError{Reason: sinks.ReasonConfig, Detail: present(err.Error())}
	}
	if _, err := credentials.Retrieve(ctx); err != nil {
		return &sinks.OpenError{Reason: sinks.ReasonAuth, Detail: present(err.Error())}
	}
	s.service = made
	if s.to.Places() > 0 {
		return nil
	}
	err = made.find(ctx, s.to.Texts()[0])
	if err == nil {
		return nil
	}
	what, text := failed(ctx, err)
	switch {
	case what == noRight: // sending doesn't need the right to look for the queue or topic
		return nil
	case what.result != sinks.Unavailable:
		what.reason = sinks.ReasonConnection
	}
	return &sinks.OpenError{Reason: what.reason, Detail: "find the " + s.what() + ": " + text}
}

// Close does nothing: the connections close when the process ends.
func (s *sink) Close(context.Context) error { return nil }

// Destination returns the queue or topic.
func (s *sink) Destination() string {
	return "aws " + s.what() + " " + strings.Join(s.to.Texts(), "{}")
}

// Order returns sinks.OrderPrefix: a message is sent only after the previous message of its key was stored. A queue or
// topic that isn't FIFO doesn't keep this order.
func (s *sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send sends the messages in requests of up to 10, concurrently. A request has at most one message of each key, because
// the service may refuse one message of a request and store the messages after it.
func (s *sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	r := &run{sink: s, batch: batch, outcomes: make([]sinks.Outcome, len(batch)), next: make([]int, len(batch)), entries: make([]*entry, len(batch)),
		to: make([]string, len(batch)), alone: make([]bool, len(batch)), failures: map[string]failure{}, answers: make(chan answered)}
	switch {
	case s.service == nil:
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "the sink isn't open"))
	case ctx.Err() != nil:
		return sinks.All(len(batch), sinks.Cancelled())
	}
	r.prepare()
	for r.flying > 0 || len(r.ready) > 0 {
		if len(r.ready) > 0 && r.start(ctx) {
			continue
		}
		r.take(ctx, <-r.answers)
	}
	return r.outcomes
}

// run is the state of one Send. Only the goroutine that called Send changes it. The other goroutines make one request each.
type run struct {
	sink     *sink
	batch    []sinks.Message
	outcomes []sinks.Outcome
	next     []int    // by message: the next message of its key, or 0
	entries  []*entry // by message
	to       []string // by message: the queue or topic
	alone    []bool   // by message: the message needs its own request
	ready    []int    // messages that may be sent now: the previous message of their key, if any, was delivered
	flying   int      // requests in flight
	answers  chan answered
	failures map[string]failure // by queue or topic; "" stands for the whole sink
	slowest  time.Duration
}

// failure is the reason why no more messages are sent to a queue or topic.
type failure struct {
	what   meaning
	detail string
}

// answered is the result of a request.
type answered struct {
	messages []int
	answers  []answer
	err      error
	took     time.Duration
}

// prepare links the messages of each key, and makes the first message of each key ready.
func (r *run) prepare() {
	last := make(map[string]int, len(r.batch))
	var first []int
	for i := range r.batch {
		before, known := last[r.batch[i].Key]
		if known && r.batch[i].Key != "" {
			r.next[before] = i
		} else {
			first = append(first, i)
		}
		last[r.batch[i].Key] = i
	}
	for _, i := range first {
		r.makeReady(i)
	}
}

// makeReady encodes a message and adds it to the ready messages. A message that can't be sent gets its outcome instead.
func (r *run) makeReady(i int) {
	m := &r.batch[i]
	to, err := r.sink.address(m)
	if err == nil {
		r.to[i] = to
		r.entries[i], err = encode(m, strings.HasSuffix(to, ".fifo"))
	}
	switch {
	case err != nil:
		r.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
	case r.entries[i].bytes > r.sink.service.bytes():
		r.settle(i, r.sink.outcome(m, oversized, "the message is larger than the service allows"))
	default:
		r.ready = append(r.ready, i)
	}
}

// settle records an outcome. If the message was not delivered, the later messages of its key are not sent.
func (r *run) settle(i int, o sinks.Outcome) {
	r.outcomes[i], r.entries[i] = o, nil
	if o.Result != sinks.Delivered {
		for later := r.next[i]; later != 0; later = r.next[later] {
			r.outcomes[later] = sinks.Blocked()
		}
	} else if r.next[i] != 0 {
		r.makeReady(r.next[i])
	}
}

// start sends a request with ready messages of one queue or topic. It returns false if no slot is free and the caller
// must read an answer first. It records the outcomes of messages that must no longer be sent.
func (r *run) start(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	if ctx.Err() != nil || bounded && time.Until(deadline) < r.slowest {
		r.drop(func(int) (sinks.Outcome, bool) { return sinks.Cancelled(), true })
		return true
	}
	if len(r.failures) > 0 && r.drop(r.failed) {
		return true
	}
	if !r.enter(ctx) {
		return r.flying == 0
	}
	messages := r.request()
	entries := make([]*entry, len(messages))
	for n, i := range messages {
		entries[n] = r.entries[i]
	}
	to, began := r.to[messages[0]], time.Now()
	r.flying++
	go func() {
		defer func() { <-r.sink.slots }()
		answers, err := r.sink.service.send(ctx, to, entries)
		r.answers <- answered{messages, answers, err, time.Since(began)}
	}()
	return true
}

// enter takes a slot. If no slot is free and this Send has requests in flight, enter returns false, so that the caller
// reads their answers first. If this Send has no requests in flight, enter waits for a slot until the context ends.
func (r *run) enter(ctx context.Context) bool {
	select {
	case r.sink.slots <- struct{}{}:
		return true
	default:
	}
	if r.flying > 0 {
		return false
	}
	select {
	case r.sink.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// drop removes the ready messages for which the given function returns an outcome, and records the outcomes. It
// reports whether it removed a message.
func (r *run) drop(of func(i int) (sinks.Outcome, bool)) bool {
	ready := r.ready
	r.ready = nil
	dropped := false
	for _, i := range ready {
		if o, has := of(i); has {
			r.settle(i, o)
			dropped = true
		} else {
			r.ready = append(r.ready, i)
		}
	}
	return dropped
}

// failed returns the outcome of a message that isn't sent because the sink, or its queue or topic, has failed.
func (r *run) failed(i int) (sinks.Outcome, bool) {
	if _, down := r.failures[""]; down {
		return sinks.Blocked(), true
	}
	f, down := r.failures[r.to[i]]
	return r.sink.outcome(&r.batch[i], f.what, f.detail), down
}

// request removes the messages of one request from the ready messages.
func (r *run) request() (messages []int) {
	to, room, left := r.to[r.ready[0]], r.sink.service.bytes(), []int(nil)
	for _, i := range r.ready {
		fits := len(messages) == 0 || len(messages) < mostEntries && r.entries[i].bytes <= room && !r.alone[i] && !r.alone[messages[0]]
		if r.to[i] == to && fits {
			messages, room = append(messages, i), room-r.entries[i].bytes
		} else {
			left = append(left, i)
		}
	}
	r.ready = left
	return messages
}

// take records the outcomes of a request's messages.
func (r *run) take(ctx context.Context, a answered) {
	r.flying--
	r.slowest = max(r.slowest, a.took)
	if a.err != nil {
		r.takeError(ctx, a)
		return
	}
	for n, i := range a.messages {
		got := a.answers[n]
		if got.code == "" {
			r.settle(i, sinks.Ok(got.receipt))
			continue
		}
		r.fail(i, failure{meant(got.code, got.text, got.byClient), present(got.code + ": " + got.text)})
	}
}

func (r *run) takeError(ctx context.Context, a answered) {
	what, detail := failed(ctx, a.err)
	for _, i := range a.messages {
		if what.single && len(a.messages) > 1 {
			r.alone[i] = true
			r.ready = append(r.ready, i)
			continue
		}
		r.fail(i, failure{what, detail})
	}
}

// fail records the outcome of a message that was not stored.
func (r *run) fail(i int, f failure) {
	o := r.sink.outcome(&r.batch[i], f.what, f.detail)
	switch {
	case o.Result == sinks.Unavailable:
		r.failures[""] = f
	case o.Result == sinks.Unsent && o.RetryAfter > 0:
		r.failures[r.to[i]] = f
	}
	r.settle(i, o)
}
