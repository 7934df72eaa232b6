package relay

import (
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// AttemptObserver is implemented by an Observer that wants to know of each attempt of each message
// that didn't deliver it. It is called as an Observer's other methods are.
type AttemptObserver interface {
	Attempted(attempt Attempt)
}

// Attempt is one that didn't deliver its message.
type Attempt struct {
	At        time.Time
	Sink      string
	ID        int64
	MessageID string
	Number    int // with this one, of those that are charged; an uncharged one has the number of the next
	Reason    sinks.Reason
	Detail    string // of the sink; may repeat what was sent to it
	Became    string // what became of the message, such as: is tried again
}

// tellAttempt hands an attempt on to an Observer that wants to know.
func (e *engine) tellAttempt(became string, it *item, outcome *sinks.Outcome) {
	if observer, wants := e.work.Observer.(AttemptObserver); wants {
		observer.Attempted(Attempt{
			At: time.Now(), Sink: it.queue.name, ID: it.row.ID, MessageID: it.row.Message.ID, Number: it.row.Attempts + 1,
			Reason: outcome.Reason, Detail: shorten(outcome.Detail, 1000), Became: became,
		})
	}
}
