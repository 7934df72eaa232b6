package rabbitmq

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// A nack says that one of the queues that a message goes to has not taken it: it is full, or in trouble.
// Others may have taken it, and get it again with each repetition. So after two nacks in a row nothing is
// published to the exchange with this routing key for a while, and then one message first, until one is
// confirmed. The first nack is a message's own retry.

// destination is an exchange and a routing key.
type destination struct{ exchange, routingKey string }

// full are the destinations that nack.
type full struct {
	mu        sync.Mutex
	closed    map[destination]*closure
	delivered time.Time // when the last Send ended of which a message was confirmed
}

// closure is a destination that nacks.
type closure struct {
	since  time.Time // when the Send before the last one that was nacked began; the last one, if it is the first
	began  time.Time // when the last one did
	until  time.Time // nothing is published before
	tries  int
	trying bool // one message was let through since
}

const (
	firstPause   = time.Second
	longestPause = time.Minute
)

func pauseAfter(tries int) time.Duration {
	return min(longestPause, firstPause<<min(tries-1, 10))
}

// mayPublish says whether a message may be published to a destination. Where it nacks, one may once its
// pause is over.
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

// nacked closes a destination that a Send which began then has found full. What was published before it
// was closed tells nothing new.
func (f *full) nacked(to destination, began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, now := f.closed[to], time.Now()
	if c == nil {
		for other, c := range f.closed { // of long ago: nothing was sent to them since
			if now.Sub(c.until) > longestPause {
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

func (f *full) confirmed(to destination) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.closed, to)
}

func (f *full) works() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delivered = time.Now()
}

// look returns what is known of a destination that nacks, and whether others have confirmed meanwhile.
func (f *full) look(to destination) (c closure, others bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.closed[to]; known != nil {
		c = *known
	}
	return c, f.delivered.After(c.since)
}

const fullDetail = "the broker has not taken the message (nack): a queue of it is full, or in trouble"

// apart decides what a destination that nacks is to its messages, once all others have their outcomes. A
// sink that nothing else has confirmed meanwhile is unavailable. If it was so before, the messages
// make room for those of other destinations, all but one.
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
