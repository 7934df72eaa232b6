package relay

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Observer receives a relay's events, for example for metrics. Its methods may be called concurrently, and must not block. Embed
// [NoObserver] to implement only some of them.
type Observer interface {
	// Sent is called when a sink has returned from a batch. The results are the numbers of messages by result and reason.
	Sent(sink string, took time.Duration, results map[OutcomeKind]int)

	// Delivered is called for each delivered message. The lag is the time since it was written.
	Delivered(sink, topic string, lag time.Duration)

	// Expired is called for each message that has expired and is parked or discarded.
	Expired(sink string, become OnExpire)

	// DeadLettered is called for each parked message that gets a dead letter, before both are written.
	DeadLettered(sink string)

	// Parked is called for each parked message, except for one that is parked because it has expired.
	Parked(sink string, reason sinks.Reason)

	// Settled is called when outcomes were written.
	Settled(counts storage.Settled, states map[storage.State]int)

	// LanesHeld is called with the number of lanes that the relay holds, and how many leases it has lost since the last call.
	LanesHeld(held, lost int)

	// Standby is called with a reason when the relay starts to stand by for relays with another configuration, and with "" when it
	// becomes active.
	Standby(why string)

	// SinkDown is called when a sink was found unavailable, and SinkUp when it accepts messages again.
	SinkDown(sink string, reason sinks.Reason, detail string)
	SinkUp(sink string)

	// Unrouted is called for a topic whose messages wait because it has no route, or because the sink has no handler for it: when
	// the topic is first seen, and then once a minute.
	Unrouted(topic string)

	// InMemory is called once a second with the number of the sink's messages in flight, and in memory including these.
	InMemory(sink string, inFlight, buffered int)

	// Called is called after each call of the database, successful or not. The calls are "lease", "controls", "read", "scan",
	// "claim", "settle" and "purge".
	Called(call string, took time.Duration)

	// Failed is called when a stage has failed and will be tried again.
	Failed(stage string, err error)

	// Polled is called after each read with the number of rows that it found. It is called with 0 once a second while the relay
	// has no reason to read, because it has no lanes or no room. A relay that stops calling it is dead.
	Polled(rows int)
}

// Tracer traces messages. Its methods may be called concurrently, and must not block. They must not change the messages' headers,
// except as Send says.
type Tracer interface {
	// Claimed is called with messages that were read or claimed by a call that began at the given time.
	Claimed(began time.Time, messages []sinks.Message)

	// Send is called before a batch is sent. It may replace the Headers of messages in the batch by other maps. The sink is
	// called with the context that Send returns. The returned function is called with the outcomes, in the order of the batch.
	Send(ctx context.Context, sink string, batch []sinks.Message) (context.Context, func([]sinks.Outcome))

	// Settled is called with messages whose outcomes were written by a call that began at the given time, or with the call's
	// error.
	Settled(began time.Time, messages []sinks.Message, err error)
}

// OutcomeKind is the part of a [sinks.Outcome] that is counted.
type OutcomeKind struct {
	Result sinks.Result
	Reason sinks.Reason
}

// NoObserver does nothing.
type NoObserver struct{}

var _ Observer = NoObserver{}

func (NoObserver) Sent(string, time.Duration, map[OutcomeKind]int) {}
func (NoObserver) Delivered(string, string, time.Duration)         {}
func (NoObserver) Expired(string, OnExpire)                        {}
func (NoObserver) DeadLettered(string)                             {}
func (NoObserver) Parked(string, sinks.Reason)                     {}
func (NoObserver) InMemory(string, int, int)                       {}
func (NoObserver) Called(string, time.Duration)                    {}
func (NoObserver) Settled(storage.Settled, map[storage.State]int)  {}
func (NoObserver) LanesHeld(int, int)                              {}
func (NoObserver) Standby(string)                                  {}
func (NoObserver) SinkDown(string, sinks.Reason, string)           {}
func (NoObserver) SinkUp(string)                                   {}
func (NoObserver) Unrouted(string)                                 {}
func (NoObserver) Failed(string, error)                            {}
func (NoObserver) Polled(int)                                      {}

// AttemptObserver is implemented by an [Observer] that also receives each attempt that didn't deliver its message.
type AttemptObserver interface {
	// Attempted may be called concurrently, and must not block.
	Attempted(attempt Attempt)
}

// Attempt is an attempt that didn't deliver its message.
type Attempt struct {
	At        time.Time
	Sink      string
	Topic     string
	ID        int64
	MessageID string
	Number    int // counts charged attempts, including this one; an uncharged attempt has the number of the next charged one
	Reason    sinks.Reason
	Detail    string // the sink's text; may contain parts of the message
	Err       error  // the handler's error, for errors.Is and errors.As; nil: the sink is not a function of this process
	Became    string // what happens to the message, for example "is tried again"
}
