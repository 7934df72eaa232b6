package sinktest

import (
	"cmp"
	"slices"
	"sync"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// orderWithinKey checks that messages of a key arrive in their order: within a
// batch if the sink promises an order, and from one Send to the next.
func orderWithinKey(s *subject) {
	ctx := s.opened()
	sent := s.batch(slices.Repeat([]string{"a", "b", "a", "", "c"}, 12)...)
	s.deliver(ctx, sent)
	got := s.arrivals(ids(sent))
	s.arrivedOnce(got, sent)
	s.inOrder(got, sent)
}

// retryHoldsItsKey checks that no later message of a key is delivered while a message of
// the key has to be retried. After that, all messages of the key must arrive in order.
func retryHoldsItsKey(s *subject) {
	ctx := s.opened()
	batch := s.mixed()
	first := batch[0]
	s.Answer(first.ID, sinks.Retry)
	outcomes := s.send(ctx, batch)
	if outcomes[0].Result != sinks.Retry {
		s.t.Errorf("the destination returned an error for a message, but the outcome is not a retry: %s", show(outcomes[0]))
	}
	s.heldBack(batch, outcomes)
	got := s.settled(ctx)
	left := undelivered(batch, outcomes)
	for _, m := range left {
		s.absent(got, m)
	}
	s.Answer(first.ID, sinks.Delivered)
	s.deliver(ctx, left)
	got = s.arrivals(ids(batch))
	s.arrivedOnce(got, batch)
	s.inOrder(got, batch)
}

// heldBack checks the outcomes of a batch whose first message was not delivered: the
// outcomes must preserve the order that the sink promises, and must not charge any
// other message.
func (s *subject) heldBack(batch []sinks.Message, outcomes []sinks.Outcome) {
	s.t.Helper()
	for i := 1; i < len(batch); i++ {
		sameKey, o := batch[i].Key == batch[0].Key, outcomes[i]
		switch {
		case s.order() == sinks.OrderAtomic && o.Result == sinks.Delivered:
			s.t.Errorf("the sink's order is OrderAtomic, but message %d of the batch was delivered and the first was not", i+1)
		case s.order() == sinks.OrderPrefix && sameKey && o.Result != sinks.Unsent:
			s.t.Errorf("message %d of the batch must be unsent, because the first message of its key was not delivered: %s", i+1, show(o))
		case o.Result == sinks.Reject, charged(o) && s.order() != sinks.OrderAtomic:
			s.t.Errorf("message %d was rejected or charged, although only the first message failed: %s", i+1, show(o))
		}
	}
}

// rejectHoldsItsKey makes the destination refuse a message. The sink must reject this
// message, and must not deliver later messages of its key in the same batch. When the
// later messages are sent again, they must be delivered.
func rejectHoldsItsKey(s *subject) {
	ctx := s.opened()
	batch := s.mixed()
	s.Answer(batch[0].ID, sinks.Reject)
	outcomes := s.send(ctx, batch)
	if o := outcomes[0]; o.Result != sinks.Reject || o.Detail == "" {
		s.t.Errorf("a message that the destination refused was not rejected with a detail: %s", show(o))
	}
	s.heldBack(batch, outcomes)
	left := undelivered(batch[1:], outcomes[1:])
	got := s.settled(ctx)
	for _, m := range left {
		s.absent(got, m)
	}
	s.deliver(ctx, left)
	got = s.arrivals(ids(batch[1:]))
	s.absent(got, batch[0])
	s.arrivedOnce(got, batch[1:])
	s.inOrder(got, batch[1:])
}

// concurrentSends checks that concurrent Sends don't interfere with each other, and that
// the messages of each key stay in order. It makes 8 Sends at a time, or fewer if the sink allows fewer.
func concurrentSends(s *subject) { sendConcurrently(s, func() {}) }

// renewedMeanwhile renews the sink while it sends. The sink's secrets stay the same.
func renewedMeanwhile(s *subject) {
	sendConcurrently(s, func() { s.Sink.(sinks.Renewable).Renew(s.Sink) })
}

// sendConcurrently sends batches concurrently, and calls the function after each of them.
func sendConcurrently(s *subject, after func()) {
	ctx := s.opened()
	var sent []sinks.Message
	var workers sync.WaitGroup
	const most = 8
	for worker := range min(cmp.Or(s.limits().Workers, most), most) {
		keys := []string{string(rune('a' + worker)), "", string(rune('A' + worker))}
		var batches [][]sinks.Message
		for range 10 {
			batch := s.batch(keys...)
			batches, sent = append(batches, batch), append(sent, batch...)
		}
		workers.Go(func() {
			for _, batch := range batches {
				s.deliver(ctx, batch)
				after()
			}
		})
	}
	workers.Wait()
	if s.Received != nil {
		got := s.arrivals(ids(sent))
		s.arrivedOnce(got, sent)
		s.inOrder(got, sent)
	}
}

// mixed returns a batch of messages with several keys. If the sink promises an order,
// the batch has several messages of the first key.
func (s *subject) mixed() []sinks.Message {
	if s.order() == sinks.OrderNone {
		return s.batch("a", "b", "", "c")
	}
	return s.batch("a", "b", "a", "", "a", "b")
}

// inOrder checks that the messages of each key arrived in their order.
func (s *subject) inOrder(got []outbox.Message, sent []sinks.Message) {
	s.t.Helper()
	sequence, last := map[string]int64{}, map[string]int64{}
	for _, m := range sent {
		sequence[m.ID] = m.Sequence
	}
	for _, m := range got {
		n, known := sequence[m.ID]
		if !known || m.Key == "" {
			continue
		}
		if n < last[m.Key] {
			s.t.Errorf("key %q: message %d arrived after message %d", m.Key, n, last[m.Key])
		}
		last[m.Key] = n
	}
}

// undelivered returns the messages that have to be sent again.
func undelivered(batch []sinks.Message, outcomes []sinks.Outcome) []sinks.Message {
	var left []sinks.Message
	for i, m := range batch {
		if outcomes[i].Result != sinks.Delivered {
			left = append(left, m)
		}
	}
	return left
}

// charged reports whether an outcome charges its message an attempt.
func charged(o sinks.Outcome) bool { return o.Result == sinks.Retry }
