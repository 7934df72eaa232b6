package plugins

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rowrelay/rowrelay/sinks"
)

// delivery is one Send under way.
type delivery struct {
	sink     *Sink
	process  *process
	promised promised
	batch    []sinks.Message
	outcomes []sinks.Outcome

	scratch []byte          // the message that is looked at, encoded
	at      int             // the first message that was not looked at yet
	stopped map[string]bool // keys that must not go on; mostly none
	down    bool            // the destination was unavailable
}

// part is what is handed over at once.
type part struct {
	messages []int           // their places in the batch
	body     []byte          // the messages, encoded
	keys     map[string]bool // with a plug-in that promises no order
	payload  int             // bytes
}

func (p part) ids(batch []sinks.Message) (ids []string) {
	for _, index := range p.messages {
		ids = append(ids, batch[index].ID)
	}
	return ids
}

// perMessage is at least what a message takes in a request besides itself, and
// perRequest what a request takes besides its messages.
const perMessage, perRequest = 8, 64

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
		if outcome := d.encode(); outcome != nil {
			d.set(d.at, *outcome)
			continue
		}
		if !d.fits(next) {
			return next
		}
		d.take(&next)
		if d.sink.suspects.has(d.batch[d.at].ID) {
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
	case d.process == nil || d.promised.requestBytes == 0:
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

// encode encodes the next message, or says why it can't be sent.
func (d *delivery) encode() *sinks.Outcome {
	scratch, err := appendMessage(d.scratch[:0], d.batch[d.at])
	if err != nil {
		o := sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
		return &o
	}
	d.scratch = scratch
	if size, most := len(scratch)+perMessage, d.promised.requestBytes-perRequest; size > most {
		o := sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the message takes %d bytes, and the plug-in takes %d at most", size, most))
		return &o
	}
	return nil
}

// fits says whether the next message can go with a part.
func (d *delivery) fits(p part) bool {
	m, limits := d.batch[d.at], d.promised
	switch {
	case len(p.messages) == 0:
		return true
	case limits.messages > 0 && len(p.messages) >= limits.messages,
		limits.bytes > 0 && p.payload+len(m.Payload) > limits.bytes,
		len(p.body)+len(d.scratch)+perMessage > limits.requestBytes-perRequest,
		d.sink.suspects.has(m.ID):
		return false
	}
	return !p.keys[m.Key]
}

func (d *delivery) take(p *part) {
	m := d.batch[d.at]
	if p.body == nil {
		left := len(d.batch) - d.at
		p.body = (*d.process.sink.bodies.Get(min(left*(len(d.scratch)+2*perMessage), d.promised.requestBytes)))[:0]
		p.messages = make([]int, 0, left)
	}
	p.messages = append(p.messages, d.at)
	p.body = protowire.AppendBytes(protowire.AppendTag(p.body, requestMessage, protowire.BytesType), d.scratch)
	p.payload += len(m.Payload)
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
	for i, index := range p.messages {
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
		if !d.process.delivered.Load() {
			d.process.delivered.Store(true)
		}
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
