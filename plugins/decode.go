package plugins

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rowrelay/rowrelay/sinks"
)

// request is a SendRequest.
type request struct {
	id        uint64
	timeoutMs int64
	batch     []sinks.Message // payloads share the request's memory
}

func decodeRequest(b []byte) (r request, err error) {
	count, err := countMessages(b)
	if err != nil {
		return r, err
	}
	r.batch = make([]sinks.Message, 0, count)
	d := decoder{texts: texts{most: min(len(b), textBlock)}}
	for f := (fields{rest: b}); f.next(); {
		switch {
		case f.is(requestMessage, isBytes):
			r.batch = append(r.batch, sinks.Message{})
			if err := d.message(&r.batch[len(r.batch)-1], f.bytes); err != nil {
				return r, err
			}
		case f.is(requestSendID, isNumber):
			r.id = f.value
		case f.is(requestTimeout, isNumber):
			r.timeoutMs = int64(f.value)
		}
	}
	return r, nil
}

// countMessages also finds out whether the request can be walked through.
func countMessages(b []byte) (count int, err error) {
	f := fields{rest: b}
	for f.next() {
		if f.is(requestMessage, isBytes) {
			count++
		}
	}
	return count, f.err
}

// decoder decodes messages one after the other. Mostly they have their topic and
// their headers' names in common, and sometimes the headers as a whole.
type decoder struct {
	texts   texts
	topic   string
	headers []header // of the message before, as far as this one's are not read yet
}

func (d *decoder) message(m *sinks.Message, b []byte) error {
	headers := 0
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.kind == isNumber:
			decodeNumber(m, f.number, int64(f.value))
		case f.kind != isBytes:
		case f.number == messageID:
			m.ID = d.texts.of(f.bytes)
		case f.number == messageTopic:
			d.topic = d.texts.again(d.topic, f.bytes)
			m.Topic = d.topic
		case f.number == messageKey:
			m.Key = d.texts.of(f.bytes)
		case f.number == messagePayload:
			m.Payload = slices.Clip(f.bytes) // whoever appends to it changes no other
		case f.number == messageHeader:
			if err := d.header(headers, f.bytes); err != nil {
				return err
			}
			headers++
		}
	}
	if headers > 0 {
		m.Headers = make(map[string]string, headers)
		for _, h := range d.headers[:headers] {
			m.Headers[h.name] = h.value
		}
	}
	return f.err
}

func decodeNumber(m *sinks.Message, number protowire.Number, value int64) {
	switch number {
	case messageSequence:
		m.Sequence = value
	case messageAttempt:
		m.Attempt = int(int32(value))
	case messageCreated:
		m.CreatedAt = fromMicros(value)
	case messageAvailable:
		m.AvailableAt = fromMicros(value)
	case messagePriority:
		m.Priority = int16(value)
	}
}

// header decodes the header at a place, where the message before may have had the
// same one.
func (d *decoder) header(place int, b []byte) error {
	if place == len(d.headers) {
		d.headers = append(d.headers, header{})
	}
	before := &d.headers[place]
	var now header
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(headerName, isBytes):
			now.name = d.texts.again(before.name, f.bytes)
		case f.is(headerValue, isBytes):
			now.value = d.texts.again(before.value, f.bytes)
		}
	}
	*before = now
	return f.err
}

// texts makes strings of bytes, many from one block of memory. The blocks are
// small, since whoever keeps a string keeps its block.
type texts struct {
	block strings.Builder
	most  int // bytes of a block
}

const textBlock = 1 << 10

func (t *texts) of(b []byte) string {
	if len(b) > t.block.Cap()-t.block.Len() {
		if len(b) > t.most/4 {
			return string(b)
		}
		t.block.Reset()
		t.block.Grow(t.most)
	}
	before := t.block.Len()
	t.block.Write(b)
	return t.block.String()[before:]
}

// again is of, save that what was there before is taken once more if it is the
// same.
func (t *texts) again(before string, b []byte) string {
	if string(b) == before {
		return before
	}
	return t.of(b)
}
