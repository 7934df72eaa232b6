package plugins

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// deliveryOf is that of a batch to a plug-in that takes requests of so many bytes.
func deliveryOf(t *testing.T, batch []sinks.Message, requestBytes int) *delivery {
	t.Helper()
	sink, err := New(Options{Path: "none"})
	if err != nil {
		t.Fatal(err)
	}
	return &delivery{
		sink: sink, process: &process{runner: newRunner(nil), sink: caller{bodies: &buffers{}}},
		promised: promised{requestBytes: requestBytes, order: sinks.OrderPrefix},
		batch:    batch, outcomes: make([]sinks.Outcome, len(batch)),
	}
}

// parts are all of a delivery, read again.
func parts(t *testing.T, d *delivery) (requests [][]sinks.Message, places [][]int) {
	t.Helper()
	for d.at < len(d.batch) {
		part := d.next(t.Context())
		if len(part.messages) == 0 {
			continue
		}
		if len(part.body) > d.promised.requestBytes-perRequest {
			t.Errorf("a request of %d bytes, and %d may be", len(part.body), d.promised.requestBytes)
		}
		request, err := decodeRequest(part.body)
		if err != nil {
			t.Fatal(err)
		}
		requests, places = append(requests, request.batch), append(places, part.messages)
	}
	return requests, places
}

// Each message that can go is in one part, with nothing of those that can't.
func TestPartsOfABatch(t *testing.T) {
	t.Parallel()
	batch := varied()
	batch[3].ID = "\xff"
	batch[4].Payload = bytes.Repeat([]byte("x"), 3000)
	batch[5].Headers = map[string]string{"a": "b", "\xff": "c"}
	for _, i := range []int{3, 4, 5} {
		batch[i].Key = "" // so that no other is held back
	}
	d := deliveryOf(t, batch, 2000)
	requests, places := parts(t, d)
	if len(requests) < 3 {
		t.Errorf("%d requests", len(requests))
	}
	got, at := slices.Concat(requests...), slices.Concat(places...)
	for i, place := range at {
		if !reflect.DeepEqual(got[i], batch[place]) {
			t.Errorf("message %d is\n%+v\nwant\n%+v", place, got[i], batch[place])
		}
	}
	var refused []int
	for i, o := range d.outcomes {
		if o.Result == sinks.Reject {
			refused = append(refused, i)
		}
	}
	if !slices.Equal(refused, []int{3, 4, 5}) || len(at) != len(batch)-3 || !slices.IsSorted(at) {
		t.Errorf("sent are %v, and refused %v", at, refused)
	}
}

// The length before a message takes one byte, or more, whatever was expected.
func TestMessagesOfAnySize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 100, 127, 128, 16_100, 16_300, 16_383, 16_384, 1 << 21} {
		for _, rest := range []int{0, 60, 100, 128, 5000} {
			m := sinks.Message{Message: outbox.Message{ID: "1", Payload: bytes.Repeat([]byte("x"), size), Headers: map[string]string{"name": strings.Repeat("y", rest)}}}
			alone, err := appendMessage(nil, &m)
			if err != nil {
				t.Fatal(err)
			}
			before := slices.Clip([]byte("before"))
			got, err := appendRequestMessage(before, &m)
			want := protowire.AppendBytes(append(before, requestMessage<<3|byte(isBytes)), alone)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("a message of %d and %d bytes is encoded otherwise (%v)", size, rest, err)
			}
		}
	}
}

// Outcomes are those of the messages that were sent, wherever they stand in the
// batch; an answer that breaks off counts for none.
func TestOutcomesOfAPart(t *testing.T) {
	t.Parallel()
	outcomes := []sinks.Outcome{sinks.Ok("1"), sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "2"), sinks.Ok("")}
	answer := appendOutcomes(nil, outcomes)
	for _, places := range [][]int{{1, 2, 3}, {0, 2, 4}} {
		d := deliveryOf(t, varied()[:5], 1000)
		got, err := decodeOutcomes(d.place(part{messages: places}), answer, len(places))
		if err != nil || !slices.Equal(got, outcomes) {
			t.Errorf("%v: %+v (%v)", places, got, err)
		}
		d.note(part{messages: places}, func(i int) sinks.Outcome { return got[i] })
		for i, place := range places {
			if d.outcomes[place] != outcomes[i] {
				t.Errorf("%v: outcome %d is %+v", places, place, d.outcomes[place])
			}
		}
	}
	if _, err := decodeOutcomes(nil, answer[:len(answer)-1], 3); err == nil {
		t.Error("half an answer is taken for one")
	}
}
