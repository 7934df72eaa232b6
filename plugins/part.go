package plugins

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/sinks"
)

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
func (d *delivery) next(ctx context.Context) (next part) {
	for ; d.at < len(d.batch); d.at++ {
		if outcome := d.held(ctx); outcome != nil {
			d.set(d.at, *outcome)
			continue
		}
		if !d.mayGo(next) {
			return next
		}
		full, outcome := d.take(&next)
		switch {
		case full:
			return next
		case outcome != nil:
			d.set(d.at, *outcome)
		case d.sink.suspects.has(d.batch[d.at].ID):
			d.at++
			return next
		}
	}
	return next
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

// take takes the next message into a part. It doesn't where the part is full, and
// where the message can't be sent it says why.
func (d *delivery) take(p *part) (full bool, outcome *sinks.Outcome) {
	if p.body == nil {
		p.body, p.messages = d.room(), make([]int, 0, len(d.batch)-d.at)
	}
	body, outcome := d.encode(p.body)
	if outcome != nil || len(body) > d.most() {
		return outcome == nil, outcome
	}
	m := &d.batch[d.at]
	p.body, p.messages, p.payload = body, append(p.messages, d.at), p.payload+len(m.Payload)
	if d.promised.order == sinks.OrderNone && m.Key != "" {
		if p.keys == nil {
			p.keys = map[string]bool{}
		}
		p.keys[m.Key] = true
	}
	return false, nil
}

// encode appends the next message to a body, or says why it can't be sent.
func (d *delivery) encode(body []byte) ([]byte, *sinks.Outcome) {
	longer, err := appendRequestMessage(body, &d.batch[d.at])
	if err != nil {
		o := sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
		return nil, &o
	}
	if size, most := len(longer)-len(body), d.most(); size > most {
		o := sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the message takes %d bytes, and the plug-in takes %d at most", size, most))
		return nil, &o
	}
	return longer, nil
}

// most is how many bytes the messages of a part may take.
func (d *delivery) most() int { return d.promised.requestBytes - perRequest }

// room is memory for what is left of the batch, about as much as it takes, as far
// as that may be one part.
func (d *delivery) room() []byte {
	size, most := perRequest, d.promised.requestBytes
	for i := d.at; i < len(d.batch) && size < most; i++ {
		m := &d.batch[i]
		size += len(m.Payload) + usualRest + usualHeader*len(m.Headers)
	}
	return (*d.process.sink.bodies.Get(min(size, most)))[:0]
}
