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
	// Sent is called after a batch was sent. The map `results` contains the number of messages in the batch for each result and
	// reason.
	Sent(sink string, took time.Duration, results map[OutcomeKind]int)

	// Delivered is called for each delivered message. The parameter `lag` is the time since the message was written.
	Delivered(sink, topic string, lag time.Duration)

	// Expired is called for each message that has expired and is parked or discarded.
	Expired(sink string, become OnExpire)

	// DeadLettered is called for each message that is parked with a dead letter, before both are written.
	DeadLettered(sink string)

	// Parked is called for each message that is parked, unless it is parked because it has expired.
	Parked(sink string, reason sinks.Reason)

	// Settled is called after outcomes were written. The map `states` counts the settled messages by new state.
	Settled(counts storage.Settled, states map[storage.State]int)

	// LanesHeld is called with the number of lanes that the relay holds, and the number of leases that it has lost since the last
	// call.
	LanesHeld(held, lost int)

	// Standby is called with a reason when the relay starts to stand by because relays with another configuration are active, and
	// when the reason changes. It is called with "" when the relay becomes active.
	Standby(why string)

	// SinkDown is called when a sink becomes unavailable, and SinkUp when the sink becomes available, for the first time or
	// again.
	SinkDown(sink string, reason sinks.Reason, detail string)
	SinkUp(sink string)

	// Unrouted is called for a topic whose messages wait because the topic has no route, or because its sink has no handler or
	// destination for the topic. It is first called when the relay first sees the topic, and then once a minute.
	Unrouted(topic string)

	// InMemory is called once a second for each sink. The parameter inFlight is the number of the sink's messages that are being
	// sent. The parameter `buffered` is the number of the sink's messages in memory, including those in flight.
	InMemory(sink string, inFlight, buffered int)

	// Called is called after each of these calls to the database, whether or not it succeeded: "lease", "controls", "read",
	// "scan", "claim", "settle" and "purge".
	Called(call string, took time.Duration)

	// Failed is called when a step of the relay's work has failed. The parameter `stage` is the name of the step, which is
	// usually tried again.
	Failed(stage string, err error)

	// Polled is called after each successful read or claim, with the number of rows that it returned. While the relay has no reason
	// to read, because it has no lanes or no room, Polled is called with 0 once a second. If the calls stop, the relay is dead or
	// can't read.
	Polled(rows int)
}

// Tracer traces messages. Its methods may be called concurrently, and must not block. They must not change the maps of headers;
// only Send may replace these maps.
type Tracer interface {
	// Claimed is called with the messages that a call to the database has read or claimed. The parameter `began` is the time when
	// that call began.
	Claimed(began time.Time, messages []sinks.Message)

	// Send is called before a batch is sent to the sink `to`, whose name is `sink`. It may replace the Headers of messages in the
	// batch with other maps. The sink is called with the context that Send returns. The returned function is called with the outcomes,
	// in the order of the batch.
	Send(ctx context.Context, sink string, to sinks.Sink, batch []sinks.Message) (context.Context, func([]sinks.Outcome))

	// Settled is called after the relay has tried to write the outcomes of these messages to the database. The parameter `began` is
	// the time when this attempt began, and err is its error.
	Settled(began time.Time, messages []sinks.Message, err error)
}

// OutcomeKind is the result and the reason of a [sinks.Outcome]. Outcomes are counted separately for each OutcomeKind.
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
	Number    int // 1 plus the number of the message's earlier attempts that were charged
	Reason    sinks.Reason
	Detail    string // the sink's text; may contain parts of the message
	Err       error  // the handler's error, for errors.Is and errors.As; nil if the sink is not a function of this process
	Became    string // what happens to the message, for example "is tried again"
}
