package sinks

import (
	"strconv"
	"time"
)

// Outcome is what became of one message. The zero Outcome is a retry with an
// unknown result, so that a sink that forgets one loses nothing.
type Outcome struct {
	Result Result

	// Reason says why, in a word from a small closed set that is also a
	// metric's label.
	Reason Reason

	// Detail is for the operator: an excerpt of an answer, the text of an
	// error. It is stored with the row, so it must not hold a secret. The
	// relay keeps its first 1,000 bytes.
	Detail string

	// Receipt is what the destination answered to a delivered message: a
	// partition and offset, an HTTP status. Kept with the done row; the relay
	// keeps its first 255 bytes.
	Receipt string

	// Destination names which of several destinations behind the sink answered,
	// as a host is one of a sink whose messages choose their own. Where one of
	// them refuses everything its messages wait, and those of others go on.
	// Unavailable with a destination says that it is this one's trouble, or the
	// sink's: nothing was delivered to others meanwhile.
	// Empty for a sink with one destination. Not stored.
	Destination string

	// RetryAfter is how long the destination asked to be left alone; with
	// Unavailable it holds back the sink, with Retry and Unsent the message.
	// Zero leaves it to the relay's back-off; an Unsent message without one is
	// sent again at once.
	RetryAfter time.Duration

	// Err is the error of a function of this process, as it returned it: what a
	// relay's AttemptObserver is given. Not stored. Nil where there is none.
	Err error
}

// Result is the class of an Outcome. It decides what the relay does.
type Result int

const (
	// Retry: not delivered, or not known to be. The message is tried again after a
	// back-off, and holds back its key meanwhile. It is charged an attempt if it fails
	// again after another message was delivered, or alone for a long time. With a
	// reason of Unavailable (connection, throttled, auth, config) the destination is at
	// fault whatever the message, and a message that fails alone is never charged.
	Retry Result = iota

	// Delivered: the destination has taken the message for good.
	Delivered

	// Reject: this message will never be accepted. It is parked, and its key goes
	// on without it: at once with [ReasonInvalid], else when it is rejected again
	// after others were delivered, or alone for a long time.
	Reject

	// Unavailable: the destination as a whole is in trouble and this message
	// was not taken. Charges nothing; the relay pauses the sink and opens it
	// again.
	Unavailable

	// Unsent: not handed over, because of another message of the batch or
	// because the context ended first. Charges nothing; it is sent again. With
	// a RetryAfter, see [Postpone], that is not before this time is over.
	//
	// A message that went out in one piece with the one of its key before it is
	// Unsent, too, where that one is a Retry: it has to come after it again. If
	// it isn't known what became of the piece, the destination may have taken it.
	Unsent
)

var resultNames = map[Result]string{
	Retry: "retry", Delivered: "delivered", Reject: "reject", Unavailable: "unavailable", Unsent: "unsent",
}

// String returns the result's name as metrics and logs use it.
func (r Result) String() string {
	if name, ok := resultNames[r]; ok {
		return name
	}
	return "result(" + strconv.Itoa(int(r)) + ")"
}

// Reason says why an Outcome is what it is. The set is closed: metrics use it
// as a label.
type Reason string

// The reasons. The comment names the results that they come with.
const (
	ReasonNone         Reason = ""              // delivered
	ReasonUnknown      Reason = "unknown"       // retry: the answer was lost, it may have been delivered
	ReasonTimeout      Reason = "timeout"       // retry: no answer in time, it may have been delivered
	ReasonServerError  Reason = "server_error"  // retry: the destination failed on this message
	ReasonHandlerError Reason = "handler_error" // retry: a function returned an error
	ReasonPanic        Reason = "panic"         // retry: a function panicked
	ReasonBusy         Reason = "busy"          // retry: asked to come again later; unsent: its turn comes later; unavailable: a deduplicating sink finds out what became of a batch
	ReasonTooLarge     Reason = "too_large"     // reject: over the destination's limit
	ReasonInvalid      Reason = "invalid"       // reject: the protocol can't carry it, or it was refused as malformed: its own fault, not the destination's
	ReasonRefused      Reason = "refused"       // reject: the destination will not have it
	ReasonUnroutable   Reason = "unroutable"    // reject: nothing receives it there; unsent: nothing yet, and the relay tells of its topic
	ReasonConnection   Reason = "connection"    // unavailable, unsent: can't be reached, or the connection broke before the send; retry: a gateway says so
	ReasonThrottled    Reason = "throttled"     // unavailable, unsent: the destination asks for a pause
	ReasonAuth         Reason = "auth"          // unavailable, unsent, retry: credentials or rights
	ReasonConfig       Reason = "config"        // unavailable, retry: what all messages need isn't there, or is set wrong; what one needs is unroutable
	ReasonCancelled    Reason = "cancelled"     // unsent: the context ended before the send, or leaves too little time
	ReasonBlocked      Reason = "blocked"       // unsent: another message of the batch came first; it may have been delivered if that one is unknown
	ReasonExhausted    Reason = "exhausted"     // reject: set by the relay when the attempts are used up, by a sink that gives a message up after a time
	ReasonCrash        Reason = "crash"         // reject: set by the relay for a message that brought it down
)

// Ok returns the Outcome of a delivered message with the destination's
// receipt, which may be empty.
func Ok(receipt string) Outcome { return Outcome{Result: Delivered, Receipt: receipt} }

// Fail returns an Outcome of the given result, reason and detail.
func Fail(result Result, reason Reason, detail string) Outcome {
	return Outcome{Result: result, Reason: reason, Detail: detail}
}

// Cancelled returns the Outcome of a message that was not handed over because the
// context has ended, or leaves too little time.
func Cancelled() Outcome { return Fail(Unsent, ReasonCancelled, "") }

// Blocked returns the Outcome of a message that was not handed over because another
// one of the batch comes first: one of its key that was not delivered, or one that
// found the destination unavailable.
func Blocked() Outcome { return Fail(Unsent, ReasonBlocked, "") }

// Postpone returns the Outcome of a message that was not handed over because
// its own destination, one of several behind the sink, can't take it now: one of
// many endpoints is down, or has had its share. The message is tried again after
// this time at the earliest, and holds back its key meanwhile; nothing is
// charged, and the sink's other messages go on. The reason is connection,
// throttled, auth, busy or unroutable; after must be positive. The relay writes each postponement
// to the table, so a sink draws the time such that they don't all come back at
// once, nor every moment.
func Postpone(reason Reason, detail string, after time.Duration) Outcome {
	return Outcome{Result: Unsent, Reason: reason, Detail: detail, RetryAfter: after}
}

// All returns n copies of one outcome, for a sink whose batches succeed or
// fail whole.
func All(n int, o Outcome) []Outcome {
	outcomes := make([]Outcome, n)
	for i := range outcomes {
		outcomes[i] = o
	}
	return outcomes
}
