package plugins

import (
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// Whatever bytes a plug-in answers, the outcome is valid: its reason belongs to its result, and its texts are short UTF-8.
func FuzzOutcomeFromWire(f *testing.F) {
	for _, outcome := range []*pluginv1.Outcome{
		{Result: pluginv1.Result_DELIVERED, Receipt: "r"}, {Result: 99, Reason: 99, RetryAfterMs: -1},
		{Result: pluginv1.Result_UNSENT, Reason: pluginv1.Reason_BUSY, RetryAfterMs: 1 << 62, Detail: "d"},
	} {
		bytes, err := proto.Marshal(outcome)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		var wire pluginv1.Outcome
		if proto.Unmarshal(bytes, &wire) != nil {
			return
		}
		got := outcomeFromWire(&wire)
		if len(got.Detail) > 3*maxDetail || len(got.Receipt) > 3*maxReceipt || !utf8.ValidString(got.Detail+got.Receipt) || got.RetryAfter < 0 || got.RetryAfter > 24*time.Hour {
			t.Fatalf("%v becomes %+v", &wire, got)
		}
		if again := outcomeFromWire(outcomeToWire(got)); !reflect.DeepEqual(again, got) {
			t.Errorf("%+v comes back as %+v", got, again)
		}
	})
}

// A message comes through the protocol unchanged.
func FuzzMessageOnTheWire(f *testing.F) {
	f.Add("id", "topic", "key", []byte("payload"), "name", "value", int16(1), int64(1), int64(1e18))
	f.Add("", "t", "\xff", []byte{}, "", "\x00\xff", int16(-1), int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, id, topic, key string, payload []byte, name, value string, priority int16, sequence, nanos int64) {
		created := time.Unix(0, nanos).UTC().Truncate(time.Microsecond)
		if created.Unix() <= 0 { // 0 stands for no time
			return
		}
		message := sinks.Message{
			Message:  outbox.Message{ID: id, Topic: topic, Key: key, Payload: payload, Headers: map[string]string{name: value}, Priority: priority},
			Sequence: sequence, Attempt: 1, CreatedAt: created,
		}
		wire, err := messageToWire(&message)
		if err != nil {
			if utf8.ValidString(id) && utf8.ValidString(topic) && utf8.ValidString(name) {
				t.Fatal(err)
			}
			return
		}
		bytes, err := proto.Marshal(wire)
		if err != nil {
			t.Fatal(err)
		}
		var read pluginv1.Message
		if err := proto.Unmarshal(bytes, &read); err != nil {
			t.Fatal(err)
		}
		if len(bytes) > sizeInRequest(wire) {
			t.Errorf("%d bytes, counted as %d", len(bytes), sizeInRequest(wire))
		}
		got := messageFromWire(&read)
		if !got.CreatedAt.Equal(message.CreatedAt) {
			t.Errorf("created at %v, want %v", got.CreatedAt, message.CreatedAt)
		}
		got.CreatedAt = message.CreatedAt
		if len(message.Payload) == 0 && len(got.Payload) == 0 {
			got.Payload = message.Payload
		}
		if !reflect.DeepEqual(got, message) {
			t.Errorf("%+v comes back as %+v", message, got)
		}
	})
}
