package sinktest

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// message returns a message with a new id and sequence.
func (s *subject) message(key string) sinks.Message {
	n := s.made.Add(1)
	return sinks.Message{
		Message: outbox.Message{
			ID:      fmt.Sprintf("0195c0de-0000-7000-8000-%012d", n),
			Topic:   s.Topic,
			Key:     key,
			Payload: fmt.Appendf(nil, `{"n":%d}`, n),
			Headers: map[string]string{"x-count": fmt.Sprint(n)},
		},
		Sequence:  n,
		Attempt:   1,
		CreatedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second),
	}
}

// batch returns a message for each key.
func (s *subject) batch(keys ...string) []sinks.Message {
	batch := make([]sinks.Message, len(keys))
	for i, key := range keys {
		batch[i] = s.message(key)
	}
	return batch
}

// clone returns a deep copy of a batch.
func clone(batch []sinks.Message) []sinks.Message {
	copies := make([]sinks.Message, len(batch))
	for i, m := range batch {
		m.Payload = bytes.Clone(m.Payload)
		m.Headers = maps.Clone(m.Headers)
		copies[i] = m
	}
	return copies
}

// spoil overwrites a batch and everything it points to, like a relay that reuses
// its memory. A sink that still reads the batch delivers the wrong data, or the
// race detector reports it.
func spoil(batch []sinks.Message) {
	for i := range batch {
		for at := range batch[i].Payload {
			batch[i].Payload[at] = '!'
		}
		for name := range batch[i].Headers {
			batch[i].Headers[name] = "spoilt"
		}
		batch[i] = sinks.Message{Message: outbox.Message{ID: "spoilt", Topic: "spoilt", Key: "spoilt"}}
	}
}

// difference describes how the messages differ, or returns "".
func difference(got, want outbox.Message, nullIsEmpty bool) string {
	switch {
	case got.ID != want.ID:
		return fmt.Sprintf("the id is %q, not %q", got.ID, want.ID)
	case got.Topic != want.Topic:
		return fmt.Sprintf("the topic is %q, not %q", got.Topic, want.Topic)
	case got.Key != want.Key:
		return fmt.Sprintf("the key is %q, not %q", got.Key, want.Key)
	case !bytes.Equal(got.Payload, want.Payload):
		return fmt.Sprintf("the payload is %s, not %s", excerpt(got.Payload), excerpt(want.Payload))
	case !nullIsEmpty && (got.Payload == nil) != (want.Payload == nil):
		return fmt.Sprintf("payload == nil is %v, not %v", got.Payload == nil, want.Payload == nil)
	case !maps.Equal(got.Headers, want.Headers):
		return fmt.Sprintf("the headers are %q, not %q", got.Headers, want.Headers)
	}
	return ""
}

func excerpt(payload []byte) string {
	const most = 40
	if len(payload) > most {
		return fmt.Sprintf("%q… (%d bytes)", payload[:most], len(payload))
	}
	return fmt.Sprintf("%q", payload)
}

// ids returns the ids of messages.
func ids(batch []sinks.Message) []string {
	list := make([]string, len(batch))
	for i, m := range batch {
		list[i] = m.ID
	}
	return list
}
