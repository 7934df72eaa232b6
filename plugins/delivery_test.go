package plugins

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// deliveryOf returns the delivery of a batch to a plug-in whose requests have at
// most requestBytes bytes.
func deliveryOf(t *testing.T, batch []sinks.Message, requestBytes int) *delivery {
	t.Helper()
	sink, err := New(Options{Path: "none"})
	if err != nil {
		t.Fatal(err)
	}
	return &delivery{
		sink: sink, process: &process{runner: newRunner(nil)}, limits: sinkLimits{requestBytes: requestBytes, order: sinks.OrderPrefix},
		batch: batch, outcomes: make([]sinks.Outcome, len(batch)),
	}
}

// parts returns all parts of a delivery, decoded.
func parts(t *testing.T, d *delivery) (requests [][]sinks.Message, places [][]int) {
	t.Helper()
	for d.at < len(d.batch) {
		part := d.next(t.Context())
		if len(part.messages) == 0 {
			continue
		}
		request := &pluginv1.SendRequest{SendId: 1 << 63, TimeoutMs: 1 << 62, Messages: part.wire}
		if size := proto.Size(request); size > d.limits.requestBytes || size > part.size+perRequest {
			t.Errorf("a request has %d bytes, its messages have %d bytes in total, and the limit is %d", size, part.size, d.limits.requestBytes)
		}
		var batch []sinks.Message
		for _, w := range part.wire {
			batch = append(batch, messageFromWire(w))
		}
		requests, places = append(requests, batch), append(places, part.messages)
	}
	return requests, places
}

// Each message that can be sent is in exactly one part; the others are in none.
func TestBatchIsSplitIntoRequests(t *testing.T) {
	t.Parallel()
	batch := varied()
	batch[3].ID = "\xff"
	batch[4].Payload = bytes.Repeat([]byte("x"), 3000)
	batch[5].Headers = map[string]string{"a": "b", "\xff": "c"}
	for _, i := range []int{3, 4, 5} {
		batch[i].Key = "" // so that it blocks no other message
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
		t.Errorf("sent: %v, refused: %v", at, refused)
	}
}

// Outcomes belong to the messages that were sent, whatever positions these messages have
// in the batch. Surplus outcomes are ignored. A missing outcome counts as unknown.
func TestOutcomesBelongToTheirMessages(t *testing.T) {
	t.Parallel()
	outcomes := []sinks.Outcome{sinks.Ok("1"), sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "2"), sinks.Ok(""), sinks.Ok("4")}
	var wire []*pluginv1.Outcome
	for _, o := range outcomes {
		wire = append(wire, outcomeToWire(o))
	}
	for _, places := range [][]int{{1, 2, 3}, {0, 2, 4}} {
		d := deliveryOf(t, varied()[:5], 1000)
		d.answered(part{messages: places}, wire)
		for i, place := range places {
			if d.outcomes[place] != outcomes[i] {
				t.Errorf("%v: outcome %d is %+v", places, place, d.outcomes[place])
			}
		}
	}
	d := deliveryOf(t, varied()[:5], 1000)
	d.answered(part{messages: []int{0, 1}}, wire[:1])
	if d.outcomes[0] != outcomes[0] || d.outcomes[1] != noOutcome {
		t.Errorf("one outcome for two messages became %+v", d.outcomes[:2])
	}
}
