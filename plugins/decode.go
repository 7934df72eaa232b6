package plugins

import (
	"cmp"
	"fmt"
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
	var topic string // mostly that of the message before
	problem := eachField(b, func(number protowire.Number, value uint64, bytes []byte) {
		switch {
		case bytes == nil && number == requestSendID:
			r.id = value
		case bytes == nil && number == requestTimeout:
			r.timeoutMs = int64(value)
		case bytes != nil && number == requestMessage && err == nil:
			r.batch = append(r.batch, sinks.Message{})
			m := &r.batch[len(r.batch)-1]
			err = decodeMessage(m, bytes, topic)
			topic = m.Topic
		}
	})
	return r, cmp.Or(err, problem)
}

func countMessages(b []byte) (count int, err error) {
	err = eachField(b, func(number protowire.Number, _ uint64, bytes []byte) {
		if bytes != nil && number == requestMessage {
			count++
		}
	})
	return count, err
}

func decodeMessage(m *sinks.Message, b []byte, topic string) (err error) {
	problem := eachField(b, func(number protowire.Number, value uint64, bytes []byte) {
		if bytes == nil {
			decodeNumber(m, number, int64(value))
			return
		}
		switch number {
		case messageID:
			m.ID = string(bytes)
		case messageTopic:
			if m.Topic = topic; string(bytes) != topic {
				m.Topic = string(bytes)
			}
		case messageKey:
			m.Key = string(bytes)
		case messagePayload:
			m.Payload = slices.Clip(bytes) // whoever appends to it changes no other
		case messageHeader:
			err = cmp.Or(decodeHeader(m, bytes), err)
		}
	})
	return cmp.Or(err, problem)
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

func decodeHeader(m *sinks.Message, b []byte) error {
	var name, value string
	err := eachField(b, func(number protowire.Number, _ uint64, bytes []byte) {
		switch {
		case bytes != nil && number == headerName:
			name = string(bytes)
		case bytes != nil && number == headerValue:
			value = string(bytes)
		}
	})
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	m.Headers[name] = value
	return err
}

// eachField visits the fields of an encoded message: those with a number, whose
// bytes are nil, and those with bytes. Others, which the protocol hasn't, are
// passed over.
func eachField(b []byte, visit func(number protowire.Number, value uint64, bytes []byte)) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		var value uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return malformed(n)
		}
		if kind == protowire.VarintType || kind == protowire.BytesType {
			visit(number, value, bytes)
		}
		b = b[n:]
	}
	return nil
}

func malformed(n int) error {
	return fmt.Errorf("read a message of the plug-in protocol: %w", protowire.ParseError(n))
}
