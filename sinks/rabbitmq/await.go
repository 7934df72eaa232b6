package rabbitmq

import (
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// await finds out about the oldest message in flight, and about those behind it
// of which the broker has told meanwhile: it confirms many at once.
func (p *part) await() {
	for first := true; p.flight.len() > 0 && (first || p.isKnown(p.flight.first())); first = false {
		p.awaitOldest()
	}
}

func (p *part) isKnown(f inFlight) bool {
	select {
	case <-f.confirmation.Done():
		return true
	default:
		return false
	}
}

func (p *part) awaitOldest() {
	oldest := p.flight.first()
	if !p.confirmed(oldest) {
		p.giveUp()
		return
	}
	if !oldest.confirmation.Acked() && p.channel.IsClosed() {
		p.lost()
		return
	}
	p.flight.pop()
	p.judge(oldest)
}

// judge gives a confirmed message its outcome.
func (p *part) judge(f inFlight) {
	delete(p.ids, p.messages[f.message].ID)
	switch r, returned := p.channel.takeReturn(p.messages[f.message].ID); {
	case !f.confirmation.Acked():
		p.settle(f.message, sinks.Fail(sinks.Retry, sinks.ReasonServerError, "the broker has not taken the message (nack): its queue is full, or in trouble"))
	case returned:
		p.settle(f.message, sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, p.sink.presentable(fmt.Sprintf(
			"no queue receives it: the broker returned it from the exchange %q for the routing key %q: %d %s", f.exchange, f.routingKey, r.ReplyCode, r.ReplyText))))
	default:
		p.settle(f.message, sinks.Ok(""))
	}
}

// blockedGrace is how long messages may stay unconfirmed once the broker has
// blocked the connection: it still confirms what it had read.
const blockedGrace = time.Second

// confirmed waits for a confirmation, or for the end of the channel, which
// looks the same. On a blocked connection it doesn't wait for long.
func (p *part) confirmed(f inFlight) bool {
	if p.isKnown(f) {
		return true
	}
	select {
	case <-f.confirmation.Done():
		return true
	case <-p.blocked:
	}
	return p.confirmedInGrace(f)
}

// confirmedInGrace: once blocked, a part publishes no more, so one timer does
// for all that is in flight.
func (p *part) confirmedInGrace(f inFlight) bool {
	p.stopFor(p.session.blockedBefore())
	if p.grace == nil {
		p.grace = time.NewTimer(blockedGrace)
	}
	select {
	case <-f.confirmation.Done():
		return true
	case <-p.grace.C:
		return false
	}
}

// giveUp leaves the messages in flight to a connection that is blocked. It is
// kept: the broker reads them when it can, before what is sent again. The sink
// stays unavailable until then.
func (p *part) giveUp() {
	why := p.sink.unavailable(p.session.blockedBefore())
	for p.flight.len() > 0 {
		if f := p.flight.pop(); f.confirmation.Acked() {
			p.judge(f)
		} else {
			p.settle(f.message, sinks.Fail(sinks.Retry, sinks.ReasonTimeout, why.Detail))
		}
	}
	p.session.abandon(p.channel)
	p.channel = nil
	p.stop(sinks.Fail(sinks.Unavailable, why.Reason, why.Detail))
}
