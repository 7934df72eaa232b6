package httpsink

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// endpoint is a scheme, host and port that messages have chosen, and what the
// sink knows of it. Its methods need the lock of endpoints.
type endpoint struct {
	flying int           // requests under way
	left   chan struct{} // closed when one of them ends; nil: nobody waits
	moved  time.Time     // when it last answered, or got something to do
	took   time.Duration // its last answer
	next   time.Time     // by the rate: not before

	failures int           // in a row
	refused  string        // the message that was refused last
	refuses  bool          // closed since it refuses all
	closings int           // in a row
	until    time.Time     // closed so long; then one request tries it
	why      sinks.Outcome // what closed it

	back  time.Time // when the last of those that were put off comes back
	group int       // how many come back then
}

const (
	// patience is how long an endpoint may take to answer before it counts as
	// slow, and how long a message waits for its turn.
	patience = time.Second

	// mostFailures in a row close an endpoint.
	mostFailures = 5

	// firstPause is what an endpoint is closed for at first; it doubles.
	firstPause = time.Second

	// backlogRate is how many messages a second come back to an endpoint that was
	// closed, at most: each time they do is a write to the table.
	backlogRate = 100

	// longestTurn bounds the wait of a message that has to wait for its turn.
	longestTurn = 5 * time.Minute
)

func (e *endpoint) slow() bool { return e.took > patience }

// stuck says that requests are under way and none has been answered for a while.
func (e *endpoint) stuck(now time.Time) bool { return e.flying > 0 && now.Sub(e.moved) > patience }

// closed is the outcome of a message while the endpoint is closed, or is being
// tried.
func (e *endpoint) closed(now time.Time) (sinks.Outcome, bool) {
	wait := e.until.Sub(now)
	if e.closings == 0 || wait <= 0 && e.flying == 0 {
		return sinks.Outcome{}, false
	}
	return sinks.Postpone(e.why.Reason, e.why.Detail, e.inTurn(now, max(wait, firstPause), backlogRate, time.Second)), true
}

// spread keeps messages from all coming back at one moment.
func spread(wait time.Duration) time.Duration { return wait + rand.N(wait/4+1) }

// busy is the outcome of a message whose turn has not come. So many come back
// together, which lasts so long, and after those before them.
func (e *endpoint) busy(now time.Time, together int, lasts time.Duration) sinks.Outcome {
	return sinks.Postpone(sinks.ReasonBusy, "the endpoint has its share of requests, or answers slowly: this message's turn comes later",
		e.inTurn(now, patience, together, lasts))
}

// inTurn is how long a message waits that is put off.
func (e *endpoint) inTurn(now time.Time, least time.Duration, together int, lasts time.Duration) time.Duration {
	if e.group++; e.group > together {
		e.back, e.group = e.back.Add(lasts), 1
	}
	if soonest := now.Add(least); e.back.Before(soonest.Add(-patience / 2)) { // a little room: now goes on
		e.back, e.group = soonest, 1
	}
	return min(max(e.back.Sub(now), least), max(least, longestTurn))
}

// learn takes an outcome in, and returns what it is to the message: trouble of
// the endpoint costs no attempt, if nothing can have arrived. What it refuses closes
// it as any failure does, if it isn't the same message again and again.
func (e *endpoint) learn(message string, o sinks.Outcome, now time.Time, longest time.Duration) sinks.Outcome {
	switch o.Result {
	case sinks.Delivered:
		e.open()
	case sinks.Unavailable:
		e.failures++
		e.close(o, now, longest)
		return sinks.Postpone(o.Reason, o.Detail, e.until.Sub(now))
	case sinks.Retry:
		e.fail(o, now, longest)
	case sinks.Reject:
		if o.Reason == sinks.ReasonInvalid {
			return o // it wasn't asked
		}
		if e.closings > 0 && !e.refuses {
			e.open() // it answers
		}
		if again := e.refused == message; !again || e.refuses {
			e.refused = message
			e.refuses = e.fail(o, now, longest)
		}
	}
	return o
}

func (e *endpoint) open() {
	e.failures, e.closings, e.until, e.refused, e.refuses = 0, 0, time.Time{}, "", false
}

// fail counts a failure, and closes the endpoint if it is one too many.
func (e *endpoint) fail(o sinks.Outcome, now time.Time, longest time.Duration) (closed bool) {
	if e.failures++; e.failures < mostFailures {
		return false
	}
	detail := fmt.Sprintf("the endpoint failed %d times in a row, lastly so: %s", e.failures, o.Detail)
	e.close(sinks.Outcome{Reason: sinks.ReasonConnection, Detail: detail, RetryAfter: o.RetryAfter}, now, longest)
	return true
}

func (e *endpoint) close(why sinks.Outcome, now time.Time, longest time.Duration) {
	e.closings++
	pause := min(firstPause<<min(e.closings-1, 20), longest)
	e.until, e.why = now.Add(max(spread(pause*4/5), why.RetryAfter)), why
}
