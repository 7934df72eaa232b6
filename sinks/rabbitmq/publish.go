package rabbitmq

import (
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// fill publishes what may be published now, and writes it at once.
func (p *part) fill() {
	if p.session != nil {
		wire := p.session.wire
		wire.hold()
		defer wire.release()
	}
	for p.trouble == nil && p.channel != nil && p.ready.len() > 0 && p.hasRoom() {
		if p.ctx.Err() != nil {
			p.stop(cancelled)
			return
		}
		if err := p.session.blockedNow(); err != nil {
			p.stopFor(err)
			return
		}
		p.publish(p.ready.pop())
	}
}

// hasRoom keeps messages of one id apart too: what is returned is known by it.
func (p *part) hasRoom() bool {
	most := p.sink.options.Window
	if p.alone > 0 {
		most = 1
	}
	return p.flight.len() < most && !p.ids[p.messages[p.ready.first()].ID]
}

func (p *part) publish(i int) {
	l, err := p.sink.letter(p.messages[i])
	if err != nil {
		p.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
		return
	}
	if most := p.session.connection.Config.FrameSize; most > 0 && l.header > most {
		p.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the headers take more than the broker's largest frame of %d bytes", most)))
		return
	}
	confirmation, err := p.channel.send(l, !p.sink.options.Unroutable)
	switch {
	case err == nil:
		p.ids[p.messages[i].ID] = true
		p.flight.push(inFlight{i, l.exchange, l.routingKey, confirmation})
	case errors.Is(err, amqp.ErrClosed):
		p.ready.putBack([]int{i}) // nothing of it went out
		p.lost()
	default:
		p.settle(i, unknown(p.sink.presentable(err.Error())))
		p.lost()
	}
}

// settle notes a message's outcome, and what that means for its key.
func (p *part) settle(i int, o sinks.Outcome) {
	p.outcomes[i] = o
	if p.alone > 0 {
		p.alone--
	}
	switch {
	case o.Result != sinks.Delivered:
		p.stopKey(i)
	default:
		p.heard = true
		if p.next[i] != 0 {
			p.ready.push(p.next[i])
		}
	}
}
