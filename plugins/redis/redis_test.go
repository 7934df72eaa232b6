package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// received returns the messages of a stream.
func (p *process) received(stream string) (got []outbox.Message) {
	p.t.Helper()
	entries, err := p.client.XRange(context.Background(), stream, "-", "+").Result()
	check(p.t, err)
	for _, e := range entries {
		got = append(got, decode(e.Values))
	}
	return got
}

// decode decodes an entry as a consumer does.
func decode(values map[string]any) outbox.Message {
	m := outbox.Message{Headers: map[string]string{}}
	for name, value := range values {
		text := value.(string)
		switch name {
		case idField:
			m.ID = text
		case topicField:
			m.Topic = text
		case keyField:
			m.Key = text
		case payloadField:
			m.Payload = []byte(text)
		default:
			m.Headers[strings.TrimPrefix(name, headerField)] = text
		}
	}
	return m
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, further := range map[string][]string{
		"plain":            nil,
		"duplicate window": {"duplicate_window", "1h", "max_length", "100000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(t testing.TB) sinktest.Harness {
				p := newServer(t)
				p.do("SET", "a text", "no stream")
				return sinktest.Harness{
					Sink: pluginSink(t, p, further...), Received: func() []outbox.Message { return p.received("sinktest") },
					Break: p.stop, Repair: p.start, Stall: p.stall, Secrets: []string{password},
					Astray: func(m *sinks.Message) { m.Topic = "a text" },
				}
			})
		})
	}
}

// stall has the server hold all commands that write.
func (p *process) stall() (<-chan struct{}, func()) {
	p.do("CLIENT", "PAUSE", patience.Milliseconds(), "WRITE")
	reached := make(chan struct{})
	go func() {
		defer close(reached)
		p.until("a command is held", func() bool {
			return !strings.Contains(p.client.Info(context.Background(), "clients").Val(), "blocked_clients:0\r")
		})
	}()
	return reached, func() { p.do("CLIENT", "UNPAUSE") }
}

// message returns a message of a topic.
func message(n int, topic, key string) sinks.Message {
	return sinks.Message{Message: outbox.Message{ID: fmt.Sprint("id-", n), Topic: topic, Key: key, Payload: []byte("{}")}, Sequence: int64(n), Attempt: 1}
}
