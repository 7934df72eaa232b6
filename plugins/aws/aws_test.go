package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
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
					Secrets: []string{secretKey}, LargePayload: 200 << 10, // ElasticMQ accepts 256 KiB
				}
			})
		})
	}
}

// TestConformanceWithQueuesByTopic: each message chooses its queue by its topic.
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

// TestConformanceOfTopics uses an imitation of SNS. It can also use moto, an emulator of AWS, and a queue that
// subscribes to the topic. With moto it takes a minute, so neither CI nor another test starts moto:
//
//	pip install 'moto[server]' && MOTO_ACCOUNT_ID=000000000000 moto_server -p 5000
//	ROWRELAY_TEST_MOTO=http://127.0.0.1:5000 go test -run OfTopics .
func TestConformanceOfTopics(t *testing.T) {
	imitation := func(arn string) func(testing.TB) sinktest.Harness {
		return func(t testing.TB) sinktest.Harness {
			f := newTopic(t)
			h := sinktest.Harness{
				Sink: pluginSink(t, map[string]string{"topic": arn, "endpoint": "http://" + f.address}), Received: f.received, Topic: "orders",
				Break: f.stop, Repair: f.start, Stall: f.stall, Answer: f.answer, Secrets: []string{secretKey}, LargePayload: 200 << 10, // SNS accepts 256 KiB
			}
			if arn != topicARN {
				h.Astray = func(m *sinks.Message) { m.Topic = "no-such-topic" }
			}
			return h
		}
	}
	harnesses := map[string]func(testing.TB) sinktest.Harness{"one topic": imitation(topicARN), "topics": imitation(strings.Replace(topicARN, "orders", "{topic}", 1))}
	if os.Getenv("ROWRELAY_TEST_MOTO") != "" {
		harnesses["moto"] = func(t testing.TB) sinktest.Harness {
			at := server(t, "ROWRELAY_TEST_MOTO")
			q := newQueue(t, at, ".fifo")
			return sinktest.Harness{
				Sink: pluginSink(t, map[string]string{"topic": q.subscribed(at), "endpoint": "http://" + q.address}), Received: q.received,
				Break: q.stop, Repair: q.start, Stall: q.stall, Secrets: []string{secretKey}, LargePayload: 200 << 10,
			}
		}
	}
	for name, newHarness := range harnesses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, newHarness)
		})
	}
}
