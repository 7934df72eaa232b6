package plugins

import (
	"context"
	"fmt"

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
		if !d.mayGo(next) {
			return next
		}
		taken, outcome := d.take(&next)
		if outcome != nil {
			d.set(d.at, *outcome)
			continue
		}
		if !taken {
			return next
		}
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

// mayGo says whether the next message may go with a part, if there is room for
// it.
func (d *delivery) mayGo(p part) bool {
	m, limits := &d.batch[d.at], d.promised
	switch {
	case len(p.messages) == 0:
		return true
	case limits.messages > 0 && len(p.messages) >= limits.messages,
		limits.bytes > 0 && p.payload+len(m.Payload) > limits.bytes,
		d.sink.suspects.has(m.ID):
		return false
	}
	return !p.keys[m.Key]
}

// take takes the next message into a part if there is room for it, or says why it
// can't be sent.
func (d *delivery) take(p *part) (taken bool, outcome *sinks.Outcome) {
	m, most := &d.batch[d.at], d.promised.requestBytes-perRequest
	if p.body == nil {
		p.body = d.room(most)
		p.messages = make([]int, 0, len(d.batch)-d.at)
	}
	before := len(p.body)
	body, err := appendRequestMessage(p.body, m)
	p.body = body[:before]
	switch size := len(body) - before; {
	case err != nil:
		o := sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
		return false, &o
	case size > most:
		o := sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the message takes %d bytes, and the plug-in takes %d at most", size, most))
		return false, &o
	case before+size > most:
		return false, nil
	}
	p.body = body
	p.messages = append(p.messages, d.at)
	p.payload += len(m.Payload)
	if d.promised.order == sinks.OrderNone && m.Key != "" {
		if p.keys == nil {
			p.keys = map[string]bool{}
		}
		p.keys[m.Key] = true
	}
	return true, nil
}

// room is memory for what is left of the batch, about as much as it takes and so
// much at most.
func (d *delivery) room(most int) []byte {
	size := perRequest
	for i := d.at; i < len(d.batch) && size < most; i++ {
		m := &d.batch[i]
		size += len(m.Payload) + usualRest + usualHeader*len(m.Headers)
	}
	return (*d.process.sink.bodies.Get(min(size, most)))[:0]
}

// place is where the outcomes of a part may be decoded: at once where they belong,
// if the part's messages follow each other.
func (d *delivery) place(p part) []sinks.Outcome {
	first, count := p.messages[0], len(p.messages)
	if p.messages[count-1] != first+count-1 {
		return nil
	}
	return d.outcomes[first : first : first+count]
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
