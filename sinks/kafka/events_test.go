package kafka_test

import (
	"encoding/json"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// TestCloudEvents: in binary mode, attributes are headers. In structured mode, the
// official SDK reads the record as an event. A message with an invalid attribute is
// rejected, and the others are delivered.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	for _, mode := range []cloudevents.Mode{cloudevents.Binary, cloudevents.Structured} {
		sink := newSink(t, kafka.Options{Brokers: addresses, CloudEvents: cloudevents.Options{Mode: mode, Source: "/shop", Type: "order.placed"}})
		batch := batchOf(topic, "a", "b", "c")
		batch[1].Headers = map[string]string{"ce-time": "noon"}
		batch[2].Headers = map[string]string{"ce-tenant": "t1", "trace": "x"}
		if outcomes := sink.Send(t.Context(), batch); outcomes[0].Result != sinks.Delivered || outcomes[1].Reason != sinks.ReasonInvalid || outcomes[2].Result != sinks.Delivered {
			t.Errorf("%s: %+v", mode, outcomes)
		}
	}
	got := records(t, addresses, topic, 4)
	if h := headersOf(got[1]); h["ce_type"] != "order.placed" || h["ce_tenant"] != "t1" || h["trace"] != "x" || h["ce_source"] != "/shop" ||
		h["ce_id"] != h["rowrelay-message-id"] || h["content-type"] != "application/octet-stream" {
		t.Errorf("binary: %q", h)
	}
	var read event.Event
	if err := json.Unmarshal(got[3].Value, &read); err != nil || read.Validate() != nil || read.Extensions()["tenant"] != "t1" ||
		read.ID() != headersOf(got[3])["rowrelay-message-id"] || headersOf(got[3])["content-type"] != "application/cloudevents+json; charset=UTF-8" {
		t.Errorf("structured: %s, %v, %q", got[3].Value, err, headersOf(got[3]))
	}
}

func headersOf(r *kgo.Record) map[string]string {
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return headers
}
