package rabbitmq

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// part is what a batch sends through one link. One goroutine works on it.
type part struct {
	*batch
	ctx  context.Context
	sink *Sink
	link *link

	ready  queue[int]      // messages that may be published now
	flight queue[inFlight] // published, not confirmed, in order
	ids    map[string]bool // of the messages in flight

	session *session
	channel *channel
	release func() bool // ends the watch on the context

	alone   int             // so many of the next messages travel alone
	doubt   map[int]bool    // messages that may have arrived and are published again
	idle    int             // channels that closed without a message in flight
	heard   bool            // something was confirmed
	trouble *sinks.Outcome  // nothing is begun any more, because of this
	blocked <-chan struct{} // the session's
	grace   *time.Timer     // runs from when the session got blocked
}

type inFlight struct {
	message      int
	exchange     string
	routingKey   string
	confirmation *amqp.DeferredConfirmation
}

func newPart(ctx context.Context, s *Sink, l *link, b *batch) *part {
	alone := 0
	if l.silent.Load() {
		alone = 1
	}
	return &part{alone: alone, batch: b, ctx: ctx, sink: s, link: l, ids: make(map[string]bool, s.options.Window)}
}

// run publishes and waits for confirmations in turns: as many messages as fit
// into the window, then the oldest one's fate.
func (p *part) run() {
	for p.flight.len() > 0 || p.ready.len() > 0 && p.trouble == nil && p.attach() {
		p.fill()
		p.await()
	}
	p.detach()
	p.leave()
	if p.heard {
		p.link.silent.Store(false)
	}
}

// attach gets a channel. When the context ends the connection is cut: nothing
// else interrupts a write or a wait for an answer.
func (p *part) attach() bool {
	if p.channel != nil {
		return true
	}
	if p.ctx.Err() != nil {
		return p.stop(cancelled)
	}
	n, err := p.link.ready(p.ctx)
	if err == nil {
		p.session, p.blocked, p.release = n, n.getsBlocked(), context.AfterFunc(p.ctx, n.wire.cut)
		p.channel, err = n.take()
	}
	if err == nil {
		return true
	}
	p.detach()
	if p.ctx.Err() != nil {
		return p.stop(cancelled)
	}
	return p.stopFor(err)
}

// stop ends the part, after what is in flight.
func (p *part) stop(why sinks.Outcome) bool {
	if p.trouble == nil {
		p.trouble = &why
	}
	return false
}

// stopFor ends the part because the broker can't be used.
func (p *part) stopFor(err error) bool {
	u := p.sink.unavailable(err)
	return p.stop(sinks.Fail(sinks.Unavailable, u.Reason, u.Detail))
}

// detach gives the channel back, if it owes nothing.
func (p *part) detach() {
	if p.release != nil {
		p.release()
	}
	if p.channel != nil && !p.channel.IsClosed() {
		p.session.giveBack(p.channel)
	}
	if p.grace != nil {
		p.grace.Stop()
	}
	p.channel, p.release = nil, nil
}

// leave says of what was not begun, why. A message that went out before and was
// to be published again may have arrived.
func (p *part) leave() {
	if p.trouble == nil {
		return
	}
	for p.ready.len() > 0 {
		i := p.ready.pop()
		if p.doubt[i] {
			p.settle(i, unknown("published once, and not again: "+p.trouble.Detail))
			continue
		}
		p.fail(i, *p.trouble)
	}
}

func unknown(detail string) sinks.Outcome {
	return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, detail)
}
