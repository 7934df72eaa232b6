package sinktest

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// subject is a sink under test. Its methods call the sink as the relay does, and check
// the result of every call.
type subject struct {
	Harness
	t    testing.TB
	made atomic.Int64
}

// opened opens the sink, and returns the context for further calls to the sink. A cleanup
// function closes the sink at the end of the check.
func (s *subject) opened() context.Context {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*s.Patience)
	s.t.Cleanup(cancel)
	s.t.Cleanup(func() { s.close(context.Background()) })
	if err := s.open(ctx); err != nil {
		s.t.Fatalf("Open of a sink whose destination is available: %v", err)
	}
	return ctx
}

func (s *subject) open(ctx context.Context) error {
	s.t.Helper()
	var err error
	s.within("Open", func() { err = s.Sink.Open(ctx) })
	s.keepsSecrets("Open", err)
	return err
}

func (s *subject) close(ctx context.Context) {
	s.t.Helper()
	var err error
	s.within("Close", func() { err = s.Sink.Close(ctx) })
	s.keepsSecrets("Close", err)
	if err != nil {
		s.t.Errorf("Close: %v", err)
	}
}

// send passes a copy of the batch to the sink and checks the rules for every Send.
func (s *subject) send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	s.t.Helper()
	given := clone(batch)
	var outcomes []sinks.Outcome
	s.within("Send", func() { outcomes = s.Sink.Send(ctx, given) })
	if !reflect.DeepEqual(given, batch) {
		s.t.Error("Send changed the batch, which a sink must not do")
	}
	spoil(given)
	if len(outcomes) != len(batch) {
		s.t.Fatalf("Send returned %d outcomes for %d messages", len(outcomes), len(batch))
	}
	for i, outcome := range outcomes {
		s.sound(i, outcome)
	}
	return outcomes
}

// deliver sends a batch, in as many Sends as the sink's limits and order require. All its
// messages must be delivered. If the sink postpones messages because its destination is
// busy, deliver sends all undelivered messages again.
func (s *subject) deliver(ctx context.Context, batch []sinks.Message) {
	s.t.Helper()
	for _, part := range s.parts(batch) {
		for began := time.Now(); len(part) > 0; time.Sleep(pause) {
			outcomes, postponed := s.send(ctx, part), false
			for i, outcome := range outcomes {
				postponed = postponed || outcome.Result == sinks.Unsent && outcome.RetryAfter > 0
				if outcome.Result != sinks.Delivered && (outcome.Result != sinks.Unsent || !postponed || time.Since(began) > s.Patience) {
					s.t.Errorf("message %d of %d was not delivered: %s", i+1, len(part), show(outcome))
					return
				}
			}
			part = undelivered(part, outcomes)
		}
	}
}

// pause is how long deliver waits before it sends postponed messages again.
const pause = 10 * time.Millisecond

// parts divides a batch as the relay would.
func (s *subject) parts(batch []sinks.Message) [][]sinks.Message {
	most := s.limits().Messages
	var parts [][]sinks.Message
	for start := 0; start < len(batch); {
		end := start + 1
		for end < len(batch) && (most == 0 || end-start < most) && !s.conflicts(batch[start:end], batch[end]) {
			end++
		}
		parts = append(parts, batch[start:end])
		start = end
	}
	return parts
}

// conflicts reports whether the sink promises no order and the message's key is already in
// the batch.
func (s *subject) conflicts(batch []sinks.Message, m sinks.Message) bool {
	sameKey := func(other sinks.Message) bool { return m.Key != "" && other.Key == m.Key }
	return s.order() == sinks.OrderNone && slices.ContainsFunc(batch, sameKey)
}

func (s *subject) order() sinks.Order {
	if ordered, ok := s.Sink.(sinks.Ordered); ok {
		return ordered.Order()
	}
	return sinks.OrderNone
}

func (s *subject) limits() sinks.Limits {
	if limited, ok := s.Sink.(sinks.Limited); ok {
		return limited.Limits()
	}
	return sinks.Limits{}
}

// arrivals waits until messages with all these ids have arrived and returns all messages
// that have arrived.
func (s *subject) arrivals(ids []string) []outbox.Message {
	s.t.Helper()
	var got []outbox.Message
	missing := func(id string) bool {
		return !slices.ContainsFunc(got, func(m outbox.Message) bool { return m.ID == id })
	}
	s.eventually("messages that the sink reported as delivered arrive", func() bool {
		got = s.Received()
		return !slices.ContainsFunc(ids, missing)
	})
	return got
}

// settled sends one more message, waits until it has arrived, and returns all messages that
// have arrived. The suite assumes that no earlier message arrives after that.
func (s *subject) settled(ctx context.Context) []outbox.Message {
	s.t.Helper()
	last := s.batch("last")
	s.deliver(ctx, last)
	return s.arrivals(ids(last))
}

// eventually waits until the condition holds.
func (s *subject) eventually(what string, condition func() bool) {
	s.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(s.Patience); !condition(); <-tick.C {
		if time.Now().After(end) {
			s.t.Fatalf("waited %v, but this did not happen: %s", s.Patience, what)
		}
	}
}

// within fails the check if a call takes longer than Patience, or panics.
func (s *subject) within(call string, f func()) {
	s.t.Helper()
	done := make(chan any, 1)
	go func() {
		defer close(done)
		defer func() {
			if cause := recover(); cause != nil {
				done <- cause
			}
		}()
		f()
	}()
	timer := time.NewTimer(s.Patience)
	defer timer.Stop()
	select {
	case cause := <-done:
		if cause != nil {
			s.t.Fatalf("%s panicked: %v", call, cause)
		}
	case <-timer.C:
		s.t.Fatalf("%s did not return within %v", call, s.Patience)
	}
}

// reasons are the valid reasons of each result.
var reasons = map[sinks.Result][]sinks.Reason{
	sinks.Delivered: {sinks.ReasonNone},
	sinks.Retry: {
		sinks.ReasonUnknown, sinks.ReasonTimeout, sinks.ReasonServerError,
		sinks.ReasonHandlerError, sinks.ReasonPanic, sinks.ReasonBusy,
		sinks.ReasonConnection, sinks.ReasonAuth, sinks.ReasonConfig,
	},
	sinks.Reject:      {sinks.ReasonTooLarge, sinks.ReasonInvalid, sinks.ReasonRefused, sinks.ReasonUnroutable},
	sinks.Unavailable: {sinks.ReasonConnection, sinks.ReasonThrottled, sinks.ReasonAuth, sinks.ReasonConfig, sinks.ReasonBusy},
	sinks.Unsent:      {sinks.ReasonCancelled, sinks.ReasonBlocked},
}

// postponed are the valid reasons of Unsent with a RetryAfter.
var postponed = []sinks.Reason{sinks.ReasonConnection, sinks.ReasonThrottled, sinks.ReasonAuth, sinks.ReasonBusy, sinks.ReasonUnroutable}

// sound checks that a single outcome is valid.
func (s *subject) sound(i int, o sinks.Outcome) {
	s.t.Helper()
	known, ok := reasons[o.Result]
	if o.Result == sinks.Unsent && o.RetryAfter > 0 {
		known = postponed
	}
	switch {
	case !ok:
		s.t.Errorf("outcome %d has the unknown result %v", i, o.Result)
	case !slices.Contains(known, o.Reason):
		s.t.Errorf("outcome %d is %s: the reason doesn't belong to the result", i, show(o))
	case o.Receipt != "" && o.Result != sinks.Delivered:
		s.t.Errorf("outcome %d is %s: it has a receipt", i, show(o))
	case o.RetryAfter < 0 || o.RetryAfter > 0 && (o.Result == sinks.Delivered || o.Result == sinks.Reject):
		s.t.Errorf("outcome %d is %s: it has a RetryAfter of %v", i, show(o), o.RetryAfter)
	case !utf8.ValidString(o.Detail + o.Receipt):
		s.t.Errorf("outcome %d has a detail or receipt that is not UTF-8", i)
	}
	s.hidesSecrets("an outcome", o.Detail+" "+o.Receipt)
}

func (s *subject) keepsSecrets(call string, err error) {
	s.t.Helper()
	if err != nil {
		s.hidesSecrets("an error of "+call, err.Error())
	}
}

func (s *subject) hidesSecrets(where, text string) {
	s.t.Helper()
	for _, secret := range s.Secrets {
		if strings.Contains(text, secret) {
			s.t.Errorf("%s shows a secret", where)
		}
	}
}

func show(o sinks.Outcome) string {
	return strings.TrimSpace(o.Result.String() + " " + string(o.Reason) + " " + o.Detail)
}
