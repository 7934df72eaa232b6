package sinktest

import (
	"context"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// outage: an outage charges nothing and rejects nothing, and is over when it
// is over. Only a message that was on its way when the outage began may have
// an unknown result, once.
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

// caughtUp checks that everything has arrived in order, and twice only what had
// an unknown result.
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

// outageFromTheStart: a sink whose destination is not there when it is opened
// says so, by Open or by Send, and can be closed.
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

// stillDown does what the relay does during an outage: it opens the sink and,
// if that succeeds, tries again.
func (s *subject) stillDown(ctx context.Context, batch []sinks.Message) {
	s.t.Helper()
	if err := s.open(ctx); err != nil {
		return
	}
	s.noneCharged(s.send(ctx, batch), sinks.ReasonNone)
}

// noneCharged checks that the outcomes tell of an outage: nothing delivered,
// rejected or charged but for retries of the allowed reason, and the sink
// unavailable.
func (s *subject) noneCharged(outcomes []sinks.Outcome, allowed sinks.Reason) {
	s.t.Helper()
	told := false
	for _, o := range outcomes {
		tolerated := charged(o) && o.Reason == allowed
		told = told || o.Result == sinks.Unavailable || o.RetryAfter > 0 || tolerated
		if o.Result != sinks.Unavailable && o.Result != sinks.Unsent && !tolerated {
			s.t.Errorf("during an outage, Send answered %s", show(o))
		}
	}
	if !told {
		s.t.Error("during an outage, Send called nothing unavailable and postponed nothing: the relay would try again at once")
	}
}

// recovers waits until the sink delivers again, opening it as the relay does
// where it asks for that.
func (s *subject) recovers(ctx context.Context) {
	s.t.Helper()
	batch := s.batch("recovered")
	s.eventually("the sink delivers again", func() bool {
		if err := s.open(ctx); err != nil {
			return false
		}
		o := s.send(ctx, batch)[0]
		if o.Result == sinks.Reject {
			s.t.Fatalf("after an outage, Send answered %s", show(o))
		}
		return o.Result == sinks.Delivered
	})
}

// oneDestinationStopsNoOther: where one of several destinations behind the sink can't take its
// messages, the sink is not unavailable, whether others are in the batch or not, and the others'
// messages are delivered.
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
					s.t.Errorf("one destination makes the sink unavailable: %s", show(o))
				case len(batch) == len(mixed) && went && o.Result != sinks.Delivered:
					s.t.Errorf("message %d goes elsewhere, and was not delivered: %s", i+1, show(o))
				case !(len(batch) == len(mixed) && went) && o.Result == sinks.Delivered:
					s.t.Errorf("message %d was delivered to a destination that can't take it", i+1)
				}
			}
		}
	}
}
