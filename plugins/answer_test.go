package plugins

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// Outcomes are encoded and decoded by hand as generated code does it.
func TestOutcomesAreEncodedAsGeneratedCodeDoes(t *testing.T) {
	t.Parallel()
	outcomes := []sinks.Outcome{
		sinks.Ok(""), sinks.Ok("partition 3"), sinks.Fail(sinks.Reject, sinks.ReasonInvalid, strings.Repeat("no ", 100)),
		sinks.Postpone(sinks.ReasonBusy, "later", time.Second), sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, ""),
	}
	want := &pluginv1.SendResponse{}
	for _, o := range outcomes {
		want.Outcomes = append(want.Outcomes, outcomeToWire(o))
	}
	var got pluginv1.SendResponse
	if err := proto.Unmarshal(appendOutcomes(nil, outcomes), &got); err != nil || !proto.Equal(&got, want) {
		t.Errorf("encoded is\n%v\nwant\n%v (%v)", &got, want, err)
	}
	text, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if decoded, err := decodeOutcomes(nil, text, len(outcomes)); err != nil || !slices.Equal(decoded, outcomes) {
		t.Errorf("decoded is\n%+v\nwant\n%+v (%v)", decoded, outcomes, err)
	}
	if decoded, err := decodeOutcomes(nil, text, 2); err != nil || !slices.Equal(decoded, outcomes[:2]) {
		t.Errorf("of five outcomes for two messages remain %+v (%v)", decoded, err)
	}
}

// FuzzDecodeOutcomes: nonsense is an error, or what generated code makes of it.
func FuzzDecodeOutcomes(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x0a\x02\x08\x02\x0a\x00\x0a\x08\x08\x01\x10\x06\x1a\x02no"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var want pluginv1.SendResponse
		if proto.Unmarshal(text, &want) != nil {
			_, _ = decodeOutcomes(nil, text, 100)
			return
		}
		got, err := decodeOutcomes(nil, text, len(want.GetOutcomes()))
		if err != nil || len(got) != len(want.GetOutcomes()) {
			t.Fatalf("generated code reads %d outcomes, and here: %d (%v)", len(want.GetOutcomes()), len(got), err)
		}
		for i, w := range want.GetOutcomes() {
			if o := outcomeFromWire(w); got[i] != o {
				t.Errorf("outcome %d is %+v, want %+v", i, got[i], o)
			}
		}
	})
}
