package relay

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Observer is told what happens, for metrics and logs. Its methods must return
// at once and may be called by several goroutines at the same time. Embed
// [NoObserver] to implement some of them.
type Observer interface {
	// Sent: a batch came back from a sink after took; results has the number of
	// messages by result and reason.
	Sent(sink string, took time.Duration, results map[OutcomeKind]int)

	// Delivered: so long after it was written a message was delivered.
	Delivered(sink, topic string, lag time.Duration)

	// Expired: a message was too old to be sent, and is parked or discarded.
	Expired(sink string, become OnExpire)

	// DeadLettered: a message of the sink is parked, and its dead letter written.
	DeadLettered(sink string)

	// Parked: a message of the sink is parked as error for this reason. One that is parked as
	// it has expired is told by Expired alone.
	Parked(sink string, reason sinks.Reason)

	// Settled: outcomes were written back.
	Settled(counts storage.Settled, states map[storage.State]int)

	// LanesHeld: the relay holds so many lanes now; lost says how many leases
	// it lost since the last call without having released them.
	LanesHeld(held, lost int)

	// Standby: the relay takes no part, as others of another setup live, and why; empty: it does
	// again.
	Standby(why string)

	// SinkDown: the sink was found unavailable, and why; SinkUp: it takes
	// messages again.
	SinkDown(sink string, reason sinks.Reason, detail string)
	SinkUp(sink string)

	// Unrouted: a message of this topic waits because no route takes it, or no
	// handler behind its sink. Called when a topic is met for the first time, and
	// once a minute after.
	Unrouted(topic string)

	// InMemory: so many of the sink's messages are being sent, and so many are in memory, these
	// included. Called once a second.
	InMemory(sink string, inFlight, buffered int)

	// Called: a call of the database took so long, whether it failed or not. The calls are
	// "lease", "controls", "read", "scan", "claim", "settle" and "purge".
	Called(call string, took time.Duration)

	// Failed: a stage's work failed and will be tried again.
	Failed(stage string, err error)

	// Polled: the loop looked for messages and found so many, or had no reason to look within the
	// last second: no lanes, or no room for more. A relay that doesn't call it any more is dead.
	Polled(rows int)
}

// Tracer follows messages. Its methods are called by several goroutines at the same time, and
// must return at once. The messages' headers are not theirs to change.
type Tracer interface {
	// Claimed: messages came into memory by a read or claim that began then.
	Claimed(began time.Time, messages []sinks.Message)

	// Send begins the sending of a batch. The context that it returns is what the sink is
	// called with; in the batch, which is its own, it may replace the headers of messages. What
	// it returns beside is called with the outcomes, at the same places.
	Send(ctx context.Context, sink string, batch []sinks.Message) (context.Context, func([]sinks.Outcome))

	// Settled: what became of messages was written back, by a call that began then, or the call
	// failed.
	Settled(began time.Time, messages []sinks.Message, err error)
}

// OutcomeKind is the part of a sinks.Outcome that is counted.
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

// AttemptObserver is implemented by an Observer that wants to know of each attempt of each message
// that didn't deliver it. It is called as an Observer's other methods are.
type AttemptObserver interface {
	Attempted(attempt Attempt)
}

// Attempt is one that didn't deliver its message.
type Attempt struct {
	At        time.Time
	Sink      string
	Topic     string
	ID        int64
	MessageID string
	Number    int // with this one, of those that are charged; an uncharged one has the number of the next
	Reason    sinks.Reason
	Detail    string // of the sink; may repeat what was sent to it
	Err       error  // what the handler returned, for errors.Is and errors.As; nil where the sink is no function of this process
	Became    string // what became of the message, such as: is tried again
}
