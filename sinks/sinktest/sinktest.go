// Package sinktest is the conformance suite that every sink must pass. It tests the behaviour that the relay relies on.
// Test your own sink like this:
//
//	func TestConformance(t *testing.T) {
//		sinktest.Run(t, func(t testing.TB) sinktest.Harness {
//			server := newServer(t)
//			return sinktest.Harness{Sink: mysink.New(server.URL), Received: server.received}
//		})
//	}
//
// Set as many fields of the [Harness] as you can: checks that need a missing field are skipped. Every check also examines
// the outcomes of each Send: there must be one for each message, with a reason that belongs to its result and without a
// secret. Send must not change the batch. After each Send the suite overwrites the batch, as the relay may do.
package sinktest

import (
	"cmp"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// Harness is a sink and a destination that the suite can inspect. Every check gets a new Harness. Several goroutines may call
// its functions concurrently.
type Harness struct {
	// Sink is the sink to test, not yet opened. Required.
	Sink sinks.Sink

	// Received returns the messages that have arrived, in the order of their arrival, with the same ids, topics, keys,
	// payloads and headers. Nil if the destination can't be read.
	Received func() []outbox.Message

	// Break makes the destination unavailable, as in an outage, and Repair ends the outage. Both are nil if the harness
	// can't cause outages.
	Break, Repair func()

	// Stall makes the destination accept messages without answering, until release is called. The channel reached is
	// closed when a message has arrived at the destination. Nil if the harness can't stall the destination.
	Stall func() (reached <-chan struct{}, release func())

	// Answer sets how the destination answers the message with this id. For [sinks.Retry] and [sinks.Reject], the
	// destination doesn't store the message and returns an error that leads to this result. [sinks.Delivered] restores
	// the normal answer. Nil if the harness can't set answers.
	Answer func(id string, result sinks.Result)

	// Astray changes a message so that the sink sends it to a destination that can't take it, such as a missing topic or an
	// endpoint that is down. Nil if all messages have the same destination.
	Astray func(*sinks.Message)

	// Secrets are the texts that must not appear in an outcome or an error. They should be part of the sink's settings.
	Secrets []string

	// Topic is the topic of the suite's messages. Defaults to "sinktest".
	Topic string

	// LargePayload is the size in bytes of the largest payload that must
	// arrive. Defaults to 1 MiB.
	LargePayload int

	// NullIsEmpty is set if the destination can't distinguish a NULL payload from an empty one.
	NullIsEmpty bool

	// Patience limits how long a call or an arrival may take. Defaults to 5 minutes, so that no test fails on a slow
	// machine.
	Patience time.Duration
}

// Run checks a sink. It calls newHarness once for each check. The checks run one after the other. They share no state with
// other tests, so the test t may be parallel.
func Run(t *testing.T, newHarness func(t testing.TB) Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.run(t, newHarness(t)) })
	}
}

// check tests one property of a sink.
type check struct {
	name  string
	needs func(Harness) string // the missing field of the harness; "" if none is missing
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
	{"RenewedMeanwhile", renews, renewedMeanwhile},
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

func renews(h Harness) string {
	_, can := h.Sink.(sinks.Renewable)
	return lacks(!can, "sink that is Renewable")
}

func lacks(missing bool, name string) string {
	if missing {
		return name
	}
	return ""
}
