package rabbitmq

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// A nack means that one of the queues for a message has rejected it, because the queue is full or failed.
// Other queues may have accepted the message, and receive a duplicate with each repetition. So after two
// consecutive nacks, the sink publishes nothing with the message's exchange and routing key for a pause
// of a second. Then it publishes one message at a time, with longer pauses, until the broker confirms
// one. A single nack only causes a retry.

// destination is an exchange and a routing key.
type destination struct{ exchange, routingKey string }

// full is the state of all destinations whose messages are nacked.
type full struct {
	mu        sync.Mutex
	closed    map[destination]*closure
	delivered time.Time // end of the last Send in which a message was confirmed
}

// closure is the state of a destination whose messages are nacked.
type closure struct {
	since  time.Time // start of the Send with the second to last nack; equal to began after a single nack
	began  time.Time // start of the Send with the last nack
	until  time.Time // nothing is published before this time
	tries  int       // consecutive nacks
	trying bool      // a message was published since the last nack
}

const (
	firstPause   = time.Second
	longestPause = time.Minute
	forgetAfter  = time.Hour // how long the sink remembers a destination after its last nack; longer than the relay's longest back-off by default
)

// pauseAfter returns the pause of a destination. The argument is the number of consecutive nacks after the first one.
func pauseAfter(tries int) time.Duration {
	return min(longestPause, firstPause<<min(tries-1, 10))
}

// mayPublish reports whether a message may be published to a destination. After two consecutive nacks it
// allows one message per pause.
func (f *full) mayPublish(to destination) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, now := f.closed[to], time.Now()
	if c == nil {
		return true
	}
	if now.Before(c.until) {
		return false
	}
	if c.tries > 1 {
		c.trying, c.until = true, now.Add(pauseAfter(c.tries-1))
	}
	return true
}

// nacked records a nack in the Send that began at the given time. It ignores nacks of messages that were
// published before the last pause started, because these nacks contain no new information.
func (f *full) nacked(to destination, began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, now := f.closed[to], time.Now()
	if c == nil {
		for other, c := range f.closed {
			if now.Sub(c.began) > forgetAfter {
				delete(f.closed, other)
			}
		}
		c = &closure{began: began, trying: true}
		f.closed[to] = c
	}
	if c.trying || !now.Before(c.until) {
		c.since, c.began, c.trying = c.began, began, false
		if c.tries++; c.tries > 1 {
			c.until = now.Add(pauseAfter(c.tries - 1))
		}
	}
}

// confirmed records that the broker has confirmed a message for a destination.
func (f *full) confirmed(to destination) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.closed, to)
}

// works records the end of a Send in which a message was confirmed.
func (f *full) works() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delivered = time.Now()
}

// look returns the state of a destination, and whether messages for other destinations were confirmed
// after [closure.since].
func (f *full) look(to destination) (c closure, others bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.closed[to]; known != nil {
		c = *known
	}
	return c, f.delivered.After(c.since)
}

const fullDetail = "the broker rejected the message (nack): one of its queues is full or failed"

// apart decides the outcomes of nacked messages, after all other messages have their outcomes. After the
// first nack of a destination, its messages are retried. After further nacks, they are postponed if
// messages for other destinations were confirmed since the previous nack; otherwise their outcome is
// Unavailable. There is one exception: if the destination had more than two nacks, only the first of these
// messages is Unavailable. The other messages are postponed, so that the next batches have messages for
// other destinations. If the sink has only one destination, no message is postponed.
func (s *Sink) apart(b *batch) {
	if slices.ContainsFunc(b.outcomes, func(o sinks.Outcome) bool { return o.Result == sinks.Delivered }) {
		s.full.works()
	}
	tripped := false
	for i, to := range b.full {
		if to == nil {
			continue
		}
		c, others := s.full.look(*to)
		if c.tries <= 1 {
			b.outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonServerError, fullDetail)
			continue
		}
		wait := max(firstPause, time.Until(c.until))
		if s.exchange.Places()+s.routingKey.Places() > 0 && (others || tripped && c.tries > 2) {
			wait += rand.N(wait/4 + 1)
			b.outcomes[i] = sinks.Postpone(sinks.ReasonBusy, fullDetail, wait)
			continue
		}
		tripped = true
		b.outcomes[i] = sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, fullDetail)
		b.outcomes[i].RetryAfter = wait
	}
}
