package plugins

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// Each outcome that a sink may return arrives unchanged.
func TestOutcomesCrossTheWire(t *testing.T) {
	t.Parallel()
	outcomes := []sinks.Outcome{
		{}, sinks.Ok(""), sinks.Ok("partition 3"),
		sinks.Postpone(sinks.ReasonConnection, "down", time.Second), sinks.Postpone(sinks.ReasonThrottled, "", time.Second),
		sinks.Postpone(sinks.ReasonAuth, "", time.Second), sinks.Postpone(sinks.ReasonBusy, "", time.Second),
		sinks.Postpone(sinks.ReasonUnroutable, "nobody yet", time.Second),
		{Result: sinks.Unavailable, Reason: sinks.ReasonThrottled, RetryAfter: 1500 * time.Millisecond},
		sinks.Fail(sinks.Retry, sinks.ReasonConnection, "502"), sinks.Fail(sinks.Retry, sinks.ReasonThrottled, "429"),
		sinks.Fail(sinks.Retry, sinks.ReasonAuth, "401"), sinks.Fail(sinks.Retry, sinks.ReasonConfig, "404"),
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

// The relay converts invalid outcomes to valid ones.
func TestInvalidOutcomesBecomeValid(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from *pluginv1.Outcome
		want sinks.Outcome
	}{
		"nil":                      {nil, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")},
		"a newer result":           {&pluginv1.Outcome{Result: 99}, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")},
		"a newer reason":           {&pluginv1.Outcome{Result: pluginv1.Result_REJECT, Reason: 99}, sinks.Fail(sinks.Reject, sinks.ReasonRefused, "")},
		"reason of another result": {&pluginv1.Outcome{Result: pluginv1.Result_UNAVAILABLE, Reason: pluginv1.Reason_PANIC}, sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "")},
		"a receipt":                {&pluginv1.Outcome{Result: pluginv1.Result_UNSENT, Receipt: "r"}, sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, "")},
		"a negative wait":          {&pluginv1.Outcome{Result: pluginv1.Result_RETRY, RetryAfterMs: -5}, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")},
		"a long wait":              {&pluginv1.Outcome{Result: pluginv1.Result_RETRY, RetryAfterMs: 1 << 62}, sinks.Outcome{Reason: sinks.ReasonUnknown, RetryAfter: 24 * time.Hour}},
		"a wait after a delivery":  {&pluginv1.Outcome{Result: pluginv1.Result_DELIVERED, RetryAfterMs: 5, Reason: pluginv1.Reason_BUSY}, sinks.Ok("")},
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

// A message arrives unchanged, with nil and empty values distinct.
func TestMessagesCrossTheWire(t *testing.T) {
	t.Parallel()
	messages := append(varied(),
		sinks.Message{},
		sinks.Message{Message: outbox.Message{ID: "1", Topic: "t", Payload: []byte{}}},
		sinks.Message{
			Message: outbox.Message{ID: "2", Topic: "t", Key: "\xff", Payload: []byte("payload"), Priority: -3, AvailableAt: time.UnixMicro(5).UTC(), ExpiresAt: time.UnixMicro(7).UTC(),
				Headers: map[string]string{"b": "\xfe", "a": "", "": "v"}},
			Sequence: 1 << 60, Attempt: 2, CreatedAt: time.UnixMicro(-6).UTC(),
		})
	if got := crossed(t, messages); !reflect.DeepEqual(got, messages) {
		t.Errorf("the messages arrive as\n%+v\nwant\n%+v", got, messages)
	}
}

// crossed returns the messages of a batch as a plug-in receives them.
func crossed(t *testing.T, batch []sinks.Message) (got []sinks.Message) {
	t.Helper()
	var sent, came pluginv1.SendRequest
	for i := range batch {
		w, err := messageToWire(&batch[i])
		if err != nil {
			t.Fatal(err)
		}
		sent.Messages = append(sent.Messages, w)
	}
	text, err := proto.Marshal(&sent)
	if err == nil {
		err = proto.Unmarshal(text, &came)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range came.GetMessages() {
		got = append(got, messageFromWire(w))
	}
	return got
}

// A message that the protocol can't carry, or that is too large, is rejected and
// blocks its key.
func TestMessagesThatCannotBeEncodedAreRejected(t *testing.T) {
	t.Parallel()
	message := func(key, topic string, size int) sinks.Message {
		return sinks.Message{Message: outbox.Message{ID: "1", Topic: topic, Key: key, Payload: make([]byte, size)}}
	}
	batch := []sinks.Message{message("a", "t", 5000), message("b", "\xff", 1), message("a", "t", 1)}
	d := deliveryOf(t, batch, 1000)
	if left := d.next(t.Context()); len(left.messages) > 0 {
		t.Errorf("left: %v", left)
	}
	for i, want := range []sinks.Reason{sinks.ReasonTooLarge, sinks.ReasonInvalid, sinks.ReasonBlocked} {
		if got := d.outcomes[i]; got.Reason != want {
			t.Errorf("outcome %d is %+v, want %s", i, got, want)
		}
	}
}
