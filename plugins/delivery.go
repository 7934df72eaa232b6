package plugins

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// delivery is one Send under way.
type delivery struct {
	sink     *Sink
	process  *process
	promised promised
	batch    []sinks.Message
	outcomes []sinks.Outcome

	at      int             // the first message that was not looked at yet
	stopped map[string]bool // keys that must not go on; mostly none
	down    bool            // the destination was unavailable
}

// part is what is handed over at once.
type part struct {
	indexes  []int
	messages []*pluginv1.Message
	keys     map[string]bool // with a plug-in that promises no order
	payload  int
	encoded  int
}

// perRequest is at least what a request takes besides its messages.
const perRequest = 64

// next takes the next part of the batch: messages in their order, up to one that
// has to wait for what is before it. Messages that can't be sent get their
// outcome.
func (d *delivery) next(ctx context.Context) part {
	next := part{}
	for ; d.at < len(d.batch); d.at++ {
		if outcome := d.held(ctx); outcome != nil {
			d.set(d.at, *outcome)
			continue
		}
		message, size, outcome := d.encoded()
		if outcome != nil {
			d.set(d.at, *outcome)
			continue
		}
		if !d.fits(next, size) {
			return next
		}
		d.take(&next, message, size)
		if d.sink.suspects.has(message.GetId()) {
			d.at++
			return next
		}
	}
	return next
}

// held is the outcome of a message that can't be handed over now, whatever it
// is, or nil.
func (d *delivery) held(ctx context.Context) *sinks.Outcome {
	key := d.batch[d.at].Key
	switch {
	case d.process == nil:
		o := sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, errNotOpen.Error())
		return &o
	case d.down || d.stopped[key]:
		return &neighbour
	case !d.process.alive():
		o := sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, d.process.fate().Error())
		return &o
	case ctx.Err() != nil:
		return &cancelled
	}
	return nil
}

func (d *delivery) encoded() (*pluginv1.Message, int, *sinks.Outcome) {
	message, err := toWire(d.batch[d.at])
	if err != nil {
		o := sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
		return nil, 0, &o
	}
	size := sizeOf(d.batch[d.at])
	if most := d.promised.requestBytes - perRequest; size > most {
		o := sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the message takes about %d bytes, and the plug-in takes %d at most", size, most))
		return nil, 0, &o
	}
	return message, size, nil
}

// fits says whether the next message can go with a part.
func (d *delivery) fits(p part, size int) bool {
	m, limits := d.batch[d.at], d.promised
	switch {
	case len(p.messages) == 0:
		return true
	case limits.messages > 0 && len(p.messages) >= limits.messages,
		limits.bytes > 0 && p.payload+len(m.Payload) > limits.bytes,
		p.encoded+size > limits.requestBytes-perRequest,
		d.sink.suspects.has(m.ID):
		return false
	}
	return !p.keys[m.Key]
}

func (d *delivery) take(p *part, message *pluginv1.Message, size int) {
	m := d.batch[d.at]
	p.indexes = append(p.indexes, d.at)
	p.messages = append(p.messages, message)
	p.payload += len(m.Payload)
	p.encoded += size
	if d.promised.order == sinks.OrderNone && m.Key != "" {
		if p.keys == nil {
			p.keys = map[string]bool{}
		}
		p.keys[m.Key] = true
	}
}

// note notes the outcomes of a part, in its order. What comes after a message of
// its key that is to come again has to come again, too, whatever became of it;
// and a sink that delivers all or nothing calls the failure of one message that
// of all, and all would pay for it.
func (d *delivery) note(p part, outcome func(i int) sinks.Outcome) {
	failed := false
	for i, index := range p.indexes {
		o := outcome(i)
		held := d.stopped[d.batch[index].Key] || failed && d.promised.order == sinks.OrderAtomic
		if held && o.Result != sinks.Delivered {
			o = neighbour
		}
		failed = failed || o.Result != sinks.Delivered
		d.set(index, o)
	}
}

// set notes an outcome, and what it means for the messages after it.
func (d *delivery) set(index int, o sinks.Outcome) {
	d.outcomes[index] = o
	switch key := d.batch[index].Key; {
	case o.Result == sinks.Delivered:
		d.process.delivered.Store(true)
		return
	case key != "":
		if d.stopped == nil {
			d.stopped = map[string]bool{}
		}
		d.stopped[key] = true
	}
	if o.Result == sinks.Unavailable {
		d.down = true
	}
}
