package sinks

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// Outcome is the result of sending one message. The zero Outcome is a [Retry], so that
// a sink that forgets to set an outcome loses no message.
type Outcome struct {
	Result Result

	// Reason is the cause, one of the constants below. Metrics use it as a label.
	Reason Reason

	// Detail is a text for the operator: an excerpt of the destination's answer, or
	// the text of an error. The relay stores its first 1,000 bytes with the row, so
	// it must not contain a secret.
	Detail string

	// Receipt is the destination's answer to a delivered message, such as a
	// partition and offset, or an HTTP status. The relay stores its first 255 bytes
	// with the row.
	Receipt string

	// Destination identifies one of several destinations behind the sink, for example the
	// host if the host depends on the message. If one destination refuses everything, only
	// its messages wait. A sink returns Unavailable with a Destination if it can't tell
	// whether this destination or all destinations are unavailable, because it has delivered
	// no message to any other destination since this destination's previous failure.
	// Destination is empty for a sink with a single destination. It is not stored.
	Destination string

	// RetryAfter is the pause that the destination asked for. With Unavailable, the pause
	// applies to the sink; with Retry and Unsent, it applies to the message. If RetryAfter
	// is zero, the relay's back-off applies, except that an Unsent message is sent again
	// immediately.
	RetryAfter time.Duration

	// Err is the error that a handler in this process returned, or nil. The relay
	// passes it to its AttemptObserver. It is not stored.
	Err error
}

// Result is the class of an Outcome. It decides what the relay does.
type Result int

const (
	// Retry means that the message was not delivered, or that its outcome is unknown. The relay
	// tries it again after a back-off; the later messages of its key wait meanwhile. The relay
	// charges an attempt if the message fails again after another message was delivered. It also
	// charges an attempt if the message fails for a long time while no other message is delivered,
	// unless the reason is connection, throttled, auth or config: these reasons mean that the
	// destination is the cause.
	Retry Result = iota

	// Delivered means that the destination has stored the message.
	Delivered

	// Reject means that the destination will never accept this message. With [ReasonInvalid]
	// the relay parks it immediately. Otherwise the relay parks it when it is rejected again
	// after another message was delivered, or if it is rejected for a long time while no
	// other message is delivered. The relay then sends the next message of its key, unless
	// the sink's option OnPark is relay.HoldKey.
	Reject

	// Unavailable means that the destination as a whole is unavailable and did not
	// accept this message. The relay charges no attempt, pauses the sink and opens
	// it again.
	Unavailable

	// Unsent means that the sink did not send the message, because of another
	// message of the batch or because the context ended first. The relay charges no
	// attempt and sends the message again, but not before RetryAfter (see [Postpone]).
	//
	// If one request contained two messages of a key and the first is a Retry, the
	// second is Unsent, so that the relay sends it again after the first. If the outcome
	// of the request is unknown, the destination may already have the second message.
	Unsent
)

var resultNames = map[Result]string{
	Retry: "retry", Delivered: "delivered", Reject: "reject", Unavailable: "unavailable", Unsent: "unsent",
}

// String returns the name of the result in metrics and logs.
func (r Result) String() string {
	if name, ok := resultNames[r]; ok {
		return name
	}
	return "result(" + strconv.Itoa(int(r)) + ")"
}

// Reason is the cause of an Outcome. The set of reasons is closed, because metrics
// use the reason as a label.
type Reason string

// The reasons. Each comment begins with the results that can have the reason.
const (
	ReasonNone         Reason = ""              // delivered
	ReasonUnknown      Reason = "unknown"       // retry: the answer was lost; the message may have been delivered
	ReasonTimeout      Reason = "timeout"       // retry: no answer arrived in time; the message may have been delivered
	ReasonServerError  Reason = "server_error"  // retry: the destination reported an internal error for this message
	ReasonHandlerError Reason = "handler_error" // retry: a handler or a plug-in returned an error
	ReasonPanic        Reason = "panic"         // retry: a handler or a sink panicked
	ReasonBusy         Reason = "busy"          // retry: the destination asked for a later attempt; unsent: the destination can't take the message yet; unavailable: a deduplicating sink is finding out whether a batch was delivered
	ReasonTooLarge     Reason = "too_large"     // reject: the message exceeds the destination's size limit
	ReasonInvalid      Reason = "invalid"       // reject: the protocol can't carry the message, or the destination refused it as malformed; the message is the cause
	ReasonRefused      Reason = "refused"       // reject: the destination does not accept the message
	ReasonUnroutable   Reason = "unroutable"    // reject: the destination has no receiver for the message; unsent: the destination has no receiver yet, and the relay reports the topic
	ReasonConnection   Reason = "connection"    // unavailable, unsent: the destination can't be reached, or the connection broke before the send; retry: a gateway can't reach the destination
	ReasonThrottled    Reason = "throttled"     // unavailable, unsent: the destination asks for a pause
	ReasonAuth         Reason = "auth"          // unavailable, unsent, retry: the credentials are refused, or have too few permissions
	ReasonConfig       Reason = "config"        // unavailable, retry: something that all messages need is missing or misconfigured (if only one message needs it, the reason is unroutable)
	ReasonCancelled    Reason = "cancelled"     // unsent: the context ended before the send, or left too little time for it
	ReasonBlocked      Reason = "blocked"       // unsent: an earlier message of the batch must be settled first; if that message's outcome is unknown, this message may have been delivered, too
	ReasonExhausted    Reason = "exhausted"     // reject: set by the relay when all attempts are used up, and by a sink that gives up on a message after a time limit
	ReasonCrash        Reason = "crash"         // reject: set by the relay for a message that crashed it
)

// Ok returns the Outcome of a delivered message with the destination's
// receipt, which may be empty.
func Ok(receipt string) Outcome { return Outcome{Result: Delivered, Receipt: receipt} }

// Fail returns an Outcome of the given result, reason and detail.
func Fail(result Result, reason Reason, detail string) Outcome {
	return Outcome{Result: result, Reason: reason, Detail: detail}
}

// Cancelled returns the Outcome of a message that was not sent because the context
// has ended, or leaves too little time.
func Cancelled() Outcome { return Fail(Unsent, ReasonCancelled, "") }

// Blocked returns the Outcome of a message that was not sent because of an earlier
// message of the batch: a message of its key that was not delivered, or a message
// for which the destination was unavailable.
func Blocked() Outcome { return Fail(Unsent, ReasonBlocked, "") }

// Postpone is for a sink with several destinations. It returns the Outcome of a message
// that was not sent because its destination can't take it now: for example, the
// endpoint is down or has reached its limit of requests. The relay tries the
// message again when the given time has passed, and its key waits meanwhile. The
// relay charges no attempt and sends the sink's other messages. The reason must be
// connection, throttled, auth, busy or unroutable, and the time must be positive.
//
// The relay writes each postponement to the table, so the time should not be too
// short. It should have a random part, so that messages don't return simultaneously.
func Postpone(reason Reason, detail string, after time.Duration) Outcome {
	return Outcome{Result: Unsent, Reason: reason, Detail: detail, RetryAfter: after}
}

// WaitByAge returns a time for [Postpone] that grows with the message's age, so that a long outage causes few
// writes to the table: a quarter of the time since created, but at least a second and at most a minute. WaitByAge
// shortens the result by up to a quarter, at random, so that messages don't return simultaneously.
func WaitByAge(created time.Time) time.Duration {
	wait := min(max(time.Since(created)/4, time.Second), time.Minute)
	return wait - rand.N(wait/4)
}

// All returns n copies of one outcome, for a sink whose batches succeed or fail as
// a whole.
func All(n int, o Outcome) []Outcome {
	outcomes := make([]Outcome, n)
	for i := range outcomes {
		outcomes[i] = o
	}
	return outcomes
}
