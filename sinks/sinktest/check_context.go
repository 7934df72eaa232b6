package sinktest

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// contextEnded checks that Send with an ended context returns immediately, delivers
// nothing and charges no attempt.
func contextEnded(s *subject) {
	ctx := s.opened()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	late, cancelLate := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancelLate()
	var sent []sinks.Message
	for _, ended := range []context.Context{cancelled, late} {
		batch := s.batch("a", "b", "")
		for _, o := range s.sendPromptly(ended, batch) {
			if o.Result != sinks.Unsent && o.Result != sinks.Unavailable {
				s.t.Errorf("after its context had ended, Send returned %s", show(o))
			}
		}
		sent = append(sent, batch...)
	}
	if s.Received == nil {
		return
	}
	got := s.settled(ctx)
	for _, m := range sent {
		s.absent(got, m)
	}
}

// sendPromptly sends a batch, and checks that Send returns within a quarter of Patience.
func (s *subject) sendPromptly(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	s.t.Helper()
	start := time.Now()
	outcomes := s.send(ctx, batch)
	if took := time.Since(start); took > s.Patience/4 {
		s.t.Errorf("Send took %v although its context had ended", took)
	}
	return outcomes
}

// contextEndsMeanwhile checks that Send returns soon if the context ends while the
// destination doesn't answer. No message may be delivered or rejected, and at least one
// must be a retry, because its outcome is unknown. When the destination answers again,
// the sink must work again.
func contextEndsMeanwhile(s *subject) {
	ctx := s.opened()
	reached, release := s.Stall()
	batch := s.batch("a", "b", "")
	outcomes := s.sendUntil(ctx, reached, batch)
	unknown := 0
	for _, o := range outcomes {
		if o.Result == sinks.Delivered || o.Result == sinks.Reject {
			s.t.Errorf("the destination didn't answer, but Send returned %s", show(o))
		}
		if charged(o) {
			unknown++
		}
	}
	if unknown == 0 {
		s.t.Error("a message reached a destination that didn't answer, but no outcome is a retry")
	}
	release()
	s.recovers(ctx)
}

// sendUntil sends a batch and ends the context once a message has reached the
// destination.
func (s *subject) sendUntil(ctx context.Context, reached <-chan struct{}, batch []sinks.Message) []sinks.Outcome {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-reached:
			cancel()
		case <-ctx.Done():
		}
	}()
	return s.send(ctx, batch)
}
