package plugins

import (
	"maps"
	"slices"

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
			r.batch = r.batch[:len(r.batch)+1]
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
// their headers' names in common, and often some headers or all.
type decoder struct {
	texts   texts
	topic   string
	headers []header          // of the message before, as far as this one's are not read yet
	before  map[string]string // those headers
}

func (d *decoder) message(m *sinks.Message, b []byte) error {
	headers, same := 0, true
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
			again, err := d.header(headers, f.bytes)
			if err != nil {
				return err
			}
			same = same && again
			headers++
		}
	}
	m.Headers = d.headersOf(headers, same)
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

// header decodes the header at a place, and says whether the message before has
// had the same there.
func (d *decoder) header(place int, b []byte) (same bool, err error) {
	var before, now header
	if same = place < len(d.headers); same {
		before = d.headers[place]
	} else {
		d.headers = append(d.headers, now)
	}
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(headerName, isBytes):
			now.name = d.texts.again(before.name, f.bytes)
		case f.is(headerValue, isBytes):
			now.value = d.texts.again(before.value, f.bytes)
		}
	}
	d.headers[place] = now
	return same && now == before, f.err
}

// headersOf makes the map of so many headers. It is the message's own, and its
// sink may change it.
func (d *decoder) headersOf(count int, same bool) map[string]string {
	if same = same && count == len(d.headers); !same {
		d.headers = d.headers[:count]
	}
	switch {
	case count == 0:
		d.before = nil
	case same:
		d.before = maps.Clone(d.before)
	default:
		d.before = make(map[string]string, count)
		for _, h := range d.headers {
			d.before[h.name] = h.value
		}
	}
	return d.before
}
