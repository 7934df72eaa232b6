package plugins

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// part is what is handed over at once.
type part struct {
	messages []int // their places in the batch
	wire     []*pluginv1.Message
	size     int             // of the messages, encoded
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
	m := &d.batch[d.at]
	wire, err := messageToWire(m)
	if err != nil {
		o := sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
		return false, &o
	}
	size, most := sizeInRequest(wire), d.promised.requestBytes-perRequest
	switch {
	case size > most:
		o := sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("the message takes %d bytes, and the plug-in takes %d at most", size, most))
		return false, &o
	case p.size+size > most:
		return true, nil
	}
	p.messages, p.wire, p.size, p.payload = append(p.messages, d.at), append(p.wire, wire), p.size+size, p.payload+len(m.Payload)
	if d.promised.order == sinks.OrderNone && m.Key != "" {
		if p.keys == nil {
			p.keys = map[string]bool{}
		}
		p.keys[m.Key] = true
	}
	return false, nil
}
