// Package sinktest is the conformance suite that every sink must pass: what the
// relay relies on, as tests. A sink of your own is tested like this:
//
//	func TestConformance(t *testing.T) {
//		sinktest.Run(t, func(t testing.TB) sinktest.Harness {
//			server := newServer(t)
//			return sinktest.Harness{Sink: mysink.New(server.URL), Received: server.received}
//		})
//	}
//
// The more of a [Harness] is filled in, the more is checked; checks whose means
// are missing are skipped by name. Whatever a check is about, each outcome of
// each Send is also looked at by itself: as many as there are messages, a
// reason that belongs to the result, no secret; and each batch must be unchanged
// after Send, which is then overwritten, as the relay may do.
package sinktest

import (
	"cmp"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// Harness is a sink and a destination that the suite can look into. Every
// check is given a new one. Its functions are called by several goroutines at
// once.
type Harness struct {
	// Sink is the sink to test, not yet opened. Required.
	Sink sinks.Sink

	// Received returns the messages that have arrived, in the order of their
	// arrival, with the same ids, topics, keys, payloads and headers. Nil where
	// the destination can't be read.
	Received func() []outbox.Message

	// Break makes the destination unavailable, as an outage does; Repair ends
	// that. Nil where it can't be done.
	Break, Repair func()

	// Stall lets the destination take messages and not answer, until release
	// is called. Reached is closed when a message has got there. Nil where it
	// can't be done.
	Stall func() (reached <-chan struct{}, release func())

	// Answer lets the destination answer so to the message with this id, and
	// not take it: with [sinks.Retry], [sinks.Reject], or, taking it as usual,
	// [sinks.Delivered]. Nil where it can't be done.
	Answer func(id string, result sinks.Result)

	// Astray has a message go to another destination behind the sink, one that
	// can't take it: a topic that isn't there, an endpoint that is gone. Nil where
	// all messages have the same destination.
	Astray func(*sinks.Message)

	// Secrets are the texts that must not appear in an outcome or an error.
	// They should be part of the sink's settings.
	Secrets []string

	// Topic is the topic of the suite's messages. Defaults to "sinktest".
	Topic string

	// LargePayload is the size in bytes of the largest payload that must
	// arrive. Defaults to 1 MiB.
	LargePayload int

	// NullIsEmpty says that the destination can't tell a NULL payload from an
	// empty one.
	NullIsEmpty bool

	// Patience is how long a call, or an arrival, may take. Defaults to 5 minutes: no test is to fail on a slow machine.
	Patience time.Duration
}

// Run checks a sink. It calls newHarness once a check. The checks run one after
// the other, and leave nothing behind: t may be parallel.
func Run(t *testing.T, newHarness func(t testing.TB) Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, newHarness(t)) })
	}
}

// check is one property of a sink.
type check struct {
	name  string
	needs func(Harness) string // what the harness lacks for it; "" if nothing
	prove func(*subject)
}

var checks = []check{
	{"OneOutcomeEach", nothing, oneOutcomeEach},
	{"ArrivesAsWritten", received, arrivesAsWritten},
	{"OddMessages", received, oddMessages},
	{"OrderWithinKey", received, orderWithinKey},
	{"RetryHoldsItsKey", answer, retryHoldsItsKey},
	{"RejectHoldsItsKey", answer, rejectHoldsItsKey},
	{"ContextEnded", nothing, contextEnded},
	{"ContextEndsMeanwhile", stall, contextEndsMeanwhile},
	{"Outage", breaks, outage},
	{"OutageFromTheStart", breaks, outageFromTheStart},
	{"OneDestinationStopsNoOther", astray, oneDestinationStopsNoOther},
	{"ConcurrentSends", nothing, concurrentSends},
	{"OpenAgain", nothing, openAgain},
	{"CloseWithoutOpen", nothing, closeWithoutOpen},
	{"NoGoroutineLeft", nothing, noGoroutineLeft},
	{"LimitsMakeSense", nothing, limitsMakeSense},
}

func (c check) run(t testing.TB, h Harness) {
	t.Helper()
	if lack := c.needs(h); lack != "" {
		t.Skipf("the harness has no %s", lack)
	}
	h.Topic = cmp.Or(h.Topic, "sinktest")
	h.LargePayload = cmp.Or(h.LargePayload, 1<<20)
	h.Patience = cmp.Or(h.Patience, 5*time.Minute)
	c.prove(&subject{Harness: h, t: t})
}

func nothing(Harness) string { return "" }

func received(h Harness) string { return lacks(h.Received == nil, "Received") }

func stall(h Harness) string { return lacks(h.Stall == nil, "Stall") }

func answer(h Harness) string { return lacks(h.Answer == nil, "Answer") }

func breaks(h Harness) string { return lacks(h.Break == nil || h.Repair == nil, "Break and Repair") }

func astray(h Harness) string { return lacks(h.Astray == nil, "Astray") }

func lacks(missing bool, name string) string {
	if missing {
		return name
	}
	return ""
}
