package sinktest

import (
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// outage checks that during an outage the sink's outcomes charge no attempt and reject no message, and
// that the sink recovers when the outage ends. Only the first Send of the outage may return unknown outcomes, because the sink
// could not know of the outage before this Send.
func outage(s *subject) {
	ctx := s.opened()
	before := s.batch("a", "b")
	s.deliver(ctx, before)
	s.Break()
	during := s.batch("a", "b", "", "c")
	outcomes := s.send(ctx, during)
	s.noneCharged(outcomes, sinks.ReasonUnknown)
	for range 3 {
		s.stillDown(ctx, during)
	}
	s.Repair()
	s.recovers(ctx)
	s.deliver(ctx, during)
	if s.Received != nil {
		s.caughtUp(before, during, outcomes)
	}
}

// caughtUp checks that all messages have arrived in order. Only a message with an unknown
// outcome may have arrived twice.
func (s *subject) caughtUp(before, during []sinks.Message, outcomes []sinks.Outcome) {
	s.t.Helper()
	sent, certain := slices.Concat(before, during), before
	for i, o := range outcomes {
		if !charged(o) {
			certain = append(certain, during[i])
		}
	}
	got := s.arrivals(ids(sent))
	s.arrivedOnce(got, certain)
	s.inOrder(got, certain)
}

// outageFromTheStart checks a sink whose destination is unavailable from the start: Open or Send
// must report this, and Close must work.
func outageFromTheStart(s *subject) {
	s.Break()
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.Patience)
	defer cancel()
	batch := s.batch("a", "b")
	for range 2 {
		s.stillDown(ctx, batch)
	}
	s.close(ctx)
	s.Repair()
}

// stillDown does what the relay does during an outage: it opens the sink and, if Open succeeds,
// sends the batch.
func (s *subject) stillDown(ctx context.Context, batch []sinks.Message) {
	s.t.Helper()
	if err := s.open(ctx); err != nil {
		return
	}
	s.noneCharged(s.send(ctx, batch), sinks.ReasonNone)
}

// noneCharged checks the outcomes of a Send during an outage. Each outcome must be unavailable,
// unsent, or a retry with the allowed reason. At least one must be unavailable, postponed, or a
// retry with the allowed reason: otherwise the relay would retry immediately.
func (s *subject) noneCharged(outcomes []sinks.Outcome, allowed sinks.Reason) {
	s.t.Helper()
	told := false
	for _, o := range outcomes {
		tolerated := charged(o) && o.Reason == allowed
		told = told || o.Result == sinks.Unavailable || o.RetryAfter > 0 || tolerated
		if o.Result != sinks.Unavailable && o.Result != sinks.Unsent && !tolerated {
			s.t.Errorf("during an outage, Send returned %s", show(o))
		}
	}
	if !told {
		s.t.Error("during an outage, Send returned no unavailable and no postponed outcome: the relay would retry immediately")
	}
}

// recovers waits until the sink delivers again. Like the relay, it opens the sink after an
// unavailable outcome.
func (s *subject) recovers(ctx context.Context) {
	s.t.Helper()
	batch := s.batch("recovered")
	s.eventually("the sink delivers again", func() bool {
		if err := s.open(ctx); err != nil {
			return false
		}
		o := s.send(ctx, batch)[0]
		if o.Result == sinks.Reject {
			s.t.Fatalf("after an outage, Send returned %s", show(o))
		}
		return o.Result == sinks.Delivered
	})
}

// oneDestinationStopsNoOther checks a sink with several destinations, one of which can't take messages. The sink must not be
// unavailable, even if the batch has only messages for this destination. Messages for other destinations must be delivered.
func oneDestinationStopsNoOther(s *subject) {
	ctx := s.opened()
	for range 3 {
		mixed := s.batch("a", "b", "", "c")
		alone := s.batch("d", "")
		for _, m := range []*sinks.Message{&mixed[1], &mixed[2], &alone[0], &alone[1]} {
			s.Astray(m)
		}
		for _, batch := range [][]sinks.Message{mixed, alone} {
			for i, o := range s.send(ctx, batch) {
				went := i == 0 || i == 3
				switch {
				case o.Result == sinks.Unavailable:
					s.t.Errorf("the sink is unavailable, although only one of its destinations can't take messages: %s", show(o))
				case len(batch) == len(mixed) && went && o.Result != sinks.Delivered:
					s.t.Errorf("message %d has a working destination, but was not delivered: %s", i+1, show(o))
				case !(len(batch) == len(mixed) && went) && o.Result == sinks.Delivered:
					s.t.Errorf("message %d counts as delivered, although its destination can't take it", i+1)
				}
			}
		}
	}
}
