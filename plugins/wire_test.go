package plugins

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// Each outcome that a sink may report is the same on the other side.
func TestOutcomesCrossTheWire(t *testing.T) {
	t.Parallel()
	outcomes := []sinks.Outcome{
		{}, sinks.Ok(""), sinks.Ok("partition 3"),
		sinks.Postpone(sinks.ReasonConnection, "down", time.Second), sinks.Postpone(sinks.ReasonThrottled, "", time.Second),
		sinks.Postpone(sinks.ReasonAuth, "", time.Second), sinks.Postpone(sinks.ReasonBusy, "", time.Second),
		{Result: sinks.Unavailable, Reason: sinks.ReasonThrottled, RetryAfter: 1500 * time.Millisecond},
	}
	for _, known := range reasons {
		outcomes = append(outcomes, sinks.Fail(known.with, known.reason, ""))
	}
	for _, o := range outcomes {
		want := o
		if o == (sinks.Outcome{}) {
			want.Reason = sinks.ReasonUnknown
		}
		if got := outcomeFromWire(outcomeToWire(o)); got != want {
			t.Errorf("%+v arrives as %+v", o, got)
		}
	}
}

// Whatever a plug-in says, the relay makes something sound of it.
func TestNonsenseFromThePlugin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from *pluginv1.Outcome
		want sinks.Outcome
	}{
		"nothing":                      {nil, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")},
		"a newer result":               {&pluginv1.Outcome{Result: 99}, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")},
		"a newer reason":               {&pluginv1.Outcome{Result: pluginv1.Result_REJECT, Reason: 99}, sinks.Fail(sinks.Reject, sinks.ReasonRefused, "")},
		"another's":                    {&pluginv1.Outcome{Result: pluginv1.Result_UNAVAILABLE, Reason: pluginv1.Reason_PANIC}, sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "")},
		"a receipt":                    {&pluginv1.Outcome{Result: pluginv1.Result_UNSENT, Receipt: "r"}, sinks.Fail(sinks.Unsent, sinks.ReasonNeighbour, "")},
		"a negative wait":              {&pluginv1.Outcome{Result: pluginv1.Result_RETRY, RetryAfterMs: -5}, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")},
		"a long wait":                  {&pluginv1.Outcome{Result: pluginv1.Result_RETRY, RetryAfterMs: 1 << 62}, sinks.Outcome{Reason: sinks.ReasonUnknown, RetryAfter: 24 * time.Hour}},
		"a wait for what is delivered": {&pluginv1.Outcome{Result: pluginv1.Result_DELIVERED, RetryAfterMs: 5, Reason: pluginv1.Reason_BUSY}, sinks.Ok("")},
	} {
		if got := outcomeFromWire(test.from); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
	long := outcomeToWire(sinks.Fail(sinks.Retry, sinks.ReasonBusy, strings.Repeat("é\xff", 1000)))
	if !utf8.ValidString(long.GetDetail()) || len(long.GetDetail()) > 2*maxDetail {
		t.Errorf("a detail of %d bytes", len(long.GetDetail()))
	}
}

// What is encoded and decoded by hand is what generated code, and so any other
// language, makes of it.
func TestMessagesAreEncodedAsGeneratedCodeDoes(t *testing.T) {
	t.Parallel()
	messages := []sinks.Message{
		{},
		{Message: outbox.Message{ID: "1", Topic: "t", Payload: []byte{}}},
		{
			Message: outbox.Message{ID: "2", Topic: "t", Key: "\xff", Payload: []byte("payload"), Priority: -3, AvailableAt: time.UnixMicro(5).UTC(),
				Headers: map[string]string{"b": "\xfe", "a": "", "": "v"}},
			Sequence: 1 << 60, Attempt: 2, CreatedAt: time.UnixMicro(-6).UTC(),
		},
	}
	want := &pluginv1.SendRequest{SendId: 1 << 63, TimeoutMs: 1500}
	var body []byte
	for _, m := range messages {
		var err error
		if body, err = appendRequestMessage(body, &m); err != nil {
			t.Fatal(err)
		}
		want.Messages = append(want.Messages, generated(m))
	}
	body = appendNumber(appendNumber(body, requestSendID, -1<<63), requestTimeout, 1500)
	var got pluginv1.SendRequest
	if err := proto.Unmarshal(body, &got); err != nil || !proto.Equal(&got, want) {
		t.Errorf("encoded is\n%v\nwant\n%v (%v)", &got, want, err)
	}
	text, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := decodeRequest(protowire.AppendFixed64(protowire.AppendTag(text, 99, protowire.Fixed64Type), 7)) // and something newer
	if err != nil || decoded.id != 1<<63 || decoded.timeoutMs != 1500 || !reflect.DeepEqual(decoded.batch, messages) {
		t.Errorf("decoded is\n%+v\nwant\n%+v (%v)", decoded, messages, err)
	}
}

// What a sink appends to a payload is in no other.
func TestPayloadsHaveRoomForNothingElse(t *testing.T) {
	t.Parallel()
	text, err := proto.Marshal(&pluginv1.SendRequest{Messages: []*pluginv1.Message{{Payload: []byte("one")}, {Payload: []byte("two")}}})
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := decodeRequest(text)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(decoded.batch[0].Payload, "0123456"...)
	if got := string(decoded.batch[1].Payload); got != "two" {
		t.Errorf("the second payload is %q", got)
	}
}

func generated(m sinks.Message) *pluginv1.Message {
	w := &pluginv1.Message{
		Id: m.ID, Topic: m.Topic, Key: []byte(m.Key), Payload: m.Payload, Sequence: m.Sequence, Attempt: int32(m.Attempt),
		CreatedAtUs: micros(m.CreatedAt), AvailableAtUs: micros(m.AvailableAt), Priority: int32(m.Priority),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		w.Headers = append(w.Headers, &pluginv1.Header{Name: name, Value: []byte(m.Headers[name])})
	}
	return w
}

// FuzzDecodeRequest: nonsense is an error, or what generated code makes of it.
func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte{})
	f.Add(encoded(f, varied()))
	f.Add([]byte("\x08\x07\x1a\x0a\x0a\x01a\x12\x01t\x22\x02{}\x1a\x02\x2a\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want pluginv1.SendRequest
		generatedErr := proto.Unmarshal(text, &want)
		got, err := decodeRequest(text)
		if generatedErr == nil && err != nil {
			t.Fatalf("generated code reads it, and here: %v", err)
		}
		if generatedErr == nil && (len(got.batch) != len(want.GetMessages()) || got.id != want.GetSendId()) {
			t.Fatalf("%d messages, want %d; id %d, want %d", len(got.batch), len(want.GetMessages()), got.id, want.GetSendId())
		}
		if generatedErr != nil {
			return
		}
		for i, w := range want.GetMessages() {
			if want := read(w); !reflect.DeepEqual(got.batch[i], want) {
				t.Errorf("message %d is\n%+v\nwant\n%+v", i, got.batch[i], want)
			}
		}
	})
}

// A message that can't cross, or is too large, is rejected and holds back its
// key.
func TestMessagesThatCannotCross(t *testing.T) {
	t.Parallel()
	message := func(key, topic string, size int) sinks.Message {
		return sinks.Message{Message: outbox.Message{ID: "1", Topic: topic, Key: key, Payload: make([]byte, size)}}
	}
	batch := []sinks.Message{message("a", "t", 5000), message("b", "\xff", 1), message("a", "t", 1)}
	sink, err := New(Options{Path: "none"})
	if err != nil {
		t.Fatal(err)
	}
	d := &delivery{
		sink: sink, process: &process{runner: newRunner(nil), sink: caller{bodies: &buffers{}}}, promised: promised{requestBytes: 1000},
		batch: batch, outcomes: make([]sinks.Outcome, len(batch)),
	}
	if left := d.next(t.Context()); len(left.messages) > 0 {
		t.Errorf("left are %v", left)
	}
	for i, want := range []sinks.Reason{sinks.ReasonTooLarge, sinks.ReasonInvalid, sinks.ReasonNeighbour} {
		if got := d.outcomes[i]; got.Reason != want {
			t.Errorf("outcome %d is %+v, want %s", i, got, want)
		}
	}
}
