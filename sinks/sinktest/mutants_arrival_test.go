package sinktest

import (
	"context"
	"maps"
	"strings"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

var arrivalMutants = []mutant{
	{"loses a message that it reports as delivered", "OneOutcomeEach", func(b *bent) {
		n := 0
		b.to.change = func(m outbox.Message) []outbox.Message {
			if n++; n%50 == 0 {
				return nil
			}
			return []outbox.Message{m}
		}
	}},
	{"delivers twice", "OneOutcomeEach", func(b *bent) {
		b.to.change = func(m outbox.Message) []outbox.Message { return []outbox.Message{m, m} }
	}},
	{"turns a NULL payload into an empty one", "ArrivesAsWritten", arriving(func(m *outbox.Message) {
		if m.Payload == nil {
			m.Payload = []byte{}
		}
	})},
	{"turns an empty payload into NULL", "ArrivesAsWritten", arriving(func(m *outbox.Message) {
		if len(m.Payload) == 0 {
			m.Payload = nil
		}
	})},
	{"carries text only", "ArrivesAsWritten", arriving(func(m *outbox.Message) {
		if m.Payload != nil {
			m.Payload = []byte(strings.ToValidUTF8(string(m.Payload), "?"))
		}
	})},
	{"cuts off large payloads", "ArrivesAsWritten", arriving(func(m *outbox.Message) { m.Payload = m.Payload[:min(len(m.Payload), 64<<10)] })},
	{"carries lines only", "ArrivesAsWritten", arriving(func(m *outbox.Message) {
		if before, _, cut := strings.Cut(string(m.Payload), "\n"); cut {
			m.Payload = []byte(before)
		}
	})},
	{"loses the key", "ArrivesAsWritten", arriving(func(m *outbox.Message) { m.Key = "" })},
	{"escapes the key and doesn't unescape it", "ArrivesAsWritten", arriving(func(m *outbox.Message) { m.Key = strings.ReplaceAll(m.Key, " ", "%20") })},
	{"loses the topic", "ArrivesAsWritten", arriving(func(m *outbox.Message) { m.Topic = "" })},
	{"replaces the ids", "OneOutcomeEach", arriving(func(m *outbox.Message) { m.ID = "mine" })},
	{"loses the headers", "ArrivesAsWritten", arriving(func(m *outbox.Message) { m.Headers = nil })},
	{"loses headers without a value", "ArrivesAsWritten", arriving(func(m *outbox.Message) {
		maps.DeleteFunc(m.Headers, func(_, value string) bool { return value == "" })
	})},
	{"adds a header", "ArrivesAsWritten", arriving(func(m *outbox.Message) { m.Headers = map[string]string{"x-mine": ""} })},
	{"trims headers", "OddMessages", arriving(func(m *outbox.Message) {
		for name, value := range m.Headers {
			m.Headers[name] = strings.TrimSpace(value)
		}
	})},
	{"replaces bytes that are not UTF-8", "OddMessages", arriving(func(m *outbox.Message) { m.Key = strings.ToValidUTF8(m.Key, "?") })},
	{"rejects odd messages and delivers them", "OddMessages", onOdd(true, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "odd"))},
	{"rejects odd messages without a detail", "OddMessages", onOdd(false, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, ""))},
	{"retries odd messages for ever", "OddMessages", onOdd(false, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "odd"))},
	{"is unavailable because of odd messages", "OddMessages", onOdd(false, sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "odd"))},
	{"panics on odd messages", "OddMessages", func(b *bent) {
		b.send = func(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
			if batch[0].Headers["x-count"] == "" {
				panic("odd")
			}
			return b.reference.Send(ctx, batch)
		}
	}},
}
