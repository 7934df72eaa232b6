package rabbitmq

import (
	"github.com/rowrelay/rowrelay/sinks"
)

// lost deals with a channel that is closed. What was confirmed before is so;
// the fate of the rest is unknown, since the broker forgets what it has yet to
// confirm.
func (p *part) lost() {
	why, text := p.channel.end(), p.describe(p.channel.why())
	suspects := p.unconfirmed()
	p.detach()
	switch {
	case isException(why) && len(suspects) == 0 && p.idle < 3:
		p.idle++ // the next try has a new channel
	case isException(why) && len(suspects) == 1:
		p.convict(suspects[0], p.sink.refused(why))
	case isException(why) && len(suspects) > 1:
		p.isolate(suspects)
	default:
		p.broken(suspects, text)
	}
}

// unconfirmed empties the flight, and returns what was not confirmed.
func (p *part) unconfirmed() []inFlight {
	var rest []inFlight
	for p.flight.len() > 0 {
		if f := p.flight.pop(); f.confirmation.Acked() {
			p.judge(f)
		} else {
			delete(p.ids, p.messages[f.message].ID)
			rest = append(rest, f)
		}
	}
	return rest
}

// convict settles the one message that the broker closed its channel over.
func (p *part) convict(f inFlight, o sinks.Outcome) {
	if o.Result == sinks.Unavailable {
		p.stop(o)
	}
	p.settle(f.message, o)
}

// isolate publishes the suspects again, each one alone on its channel, so that
// the one that the broker closes it over is known and its neighbours go on.
// Halving would take fewer steps where the window is large, but those before
// the culprit would arrive once more with each of them; so they do once.
func (p *part) isolate(suspects []inFlight) {
	if p.doubt == nil {
		p.doubt = map[int]bool{}
	}
	again := make([]int, len(suspects))
	for n, f := range suspects {
		again[n], p.doubt[f.message] = f.message, true
	}
	p.ready.putBack(again)
	p.alone = len(again)
}

// broken settles what was in flight on a connection that is gone.
func (p *part) broken(suspects []inFlight, detail string) {
	o := unknown(detail)
	p.stop(sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, detail))
	if p.ctx.Err() != nil {
		o = sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "no confirmation in time: "+detail)
		p.trouble = &cancelled
		p.link.silent.Store(len(suspects) > 0 && !p.heard)
	}
	for _, f := range suspects {
		p.settle(f.message, o)
	}
}

func (p *part) describe(why error) string {
	return p.sink.presentable("the connection to the broker is lost: " + why.Error())
}
