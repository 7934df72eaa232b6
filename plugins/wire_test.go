package plugins

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

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

// A message crosses the wire whole; one that can't, or is too large, is rejected
// and holds back its key.
func TestMessagesThatCannotCross(t *testing.T) {
	t.Parallel()
	m := sinks.Message{
		Message: outbox.Message{ID: "1", Topic: "t", Key: "\xff", Payload: []byte{}, Headers: map[string]string{"a": "\xfe"}, Priority: -3,
			AvailableAt: time.UnixMicro(5).UTC()},
		Sequence: 7, Attempt: 2, CreatedAt: time.UnixMicro(6).UTC(),
	}
	wire, err := toWire(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := toWire(fromWire(wire))
	if err != nil || !proto.Equal(wire, again) || fromWire(wire).Payload == nil {
		t.Errorf("%+v becomes %+v (%v)", wire, again, err)
	}
	if size := proto.Size(wire) + 8; sizeOf(m) < size {
		t.Errorf("a message of %d bytes is taken for one of %d", size, sizeOf(m))
	}
	large, odd, later := m, m, m
	large.Payload, odd.Topic, odd.Key, later.Key = make([]byte, 5000), "\xff", "odd", "\xff"
	sink, err := New(Options{Path: "none"})
	if err != nil {
		t.Fatal(err)
	}
	d := &delivery{
		sink: sink, process: &process{runner: newRunner(nil)}, promised: promised{requestBytes: 1000},
		batch: []sinks.Message{large, odd, later}, outcomes: make([]sinks.Outcome, 3),
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
