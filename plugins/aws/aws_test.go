package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// decode decodes a message as a consumer does.
func decode(t testing.TB, body string, attributes map[string]string) outbox.Message {
	t.Helper()
	m := outbox.Message{ID: attributes["rowrelay-message-id"], Topic: attributes["rowrelay-topic"], Key: attributes["rowrelay-key"], Payload: []byte(body), Headers: map[string]string{}}
	switch attributes["rowrelay-payload"] {
	case "null":
		m.Payload = nil
	case "empty":
		m.Payload = []byte{}
	case "base64":
		payload, err := base64.StdEncoding.DecodeString(body)
		check(t, err)
		m.Payload = payload
	}
	if rest := attributes["rowrelay-headers"]; rest != "" {
		check(t, json.Unmarshal([]byte(rest), &m.Headers))
	}
	for name, value := range attributes {
		if !strings.HasPrefix(name, "rowrelay-") {
			m.Headers[name] = value
		}
	}
	return m
}

func TestConformance(t *testing.T) {
	for _, suffix := range []string{".fifo", ""} {
		t.Run("queue"+suffix, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(t testing.TB) sinktest.Harness {
				q := newQueue(t, server(t, "ROWRELAY_TEST_ELASTICMQ"), suffix)
				return sinktest.Harness{
					Sink: pluginSink(t, map[string]string{"queue": q.url()}), Received: q.received, Break: q.stop, Repair: q.start, Stall: q.stall, Answer: q.answer,
					Secrets: []string{secretKey}, LargePayload: 200 << 10, // of ElasticMQ's 256 KiB
				}
			})
		})
	}
}

// TestConformanceWithQueuesByTopic: messages choose the queue.
func TestConformanceWithQueuesByTopic(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		q := newQueue(t, server(t, "ROWRELAY_TEST_ELASTICMQ"), ".fifo")
		return sinktest.Harness{
			Sink:  pluginSink(t, map[string]string{"queue": strings.TrimSuffix(q.url(), q.name) + "{topic}.fifo"}),
			Topic: strings.TrimSuffix(q.name, ".fifo"), Received: q.received, Break: q.stop, Repair: q.start, Stall: q.stall, Answer: q.answer,
			Astray: func(m *sinks.Message) { m.Topic = "no-such-queue" }, Secrets: []string{secretKey}, LargePayload: 200 << 10,
		}
	})
}

// TestConformanceOfTopics uses an imitation of SNS. TestProofTopics uses an emulator.
func TestConformanceOfTopics(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		f := newTopic(t)
		return sinktest.Harness{
			Sink: pluginSink(t, map[string]string{"topic": topicARN, "endpoint": "http://" + f.address}), Received: f.received,
			Break: f.stop, Repair: f.start, Stall: f.stall, Answer: f.answer, Secrets: []string{secretKey}, LargePayload: 200 << 10, // of the 256 KiB of SNS
		}
	})
}
