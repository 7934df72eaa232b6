package inproc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

func TestBatchOutcomes(t *testing.T) {
	t.Parallel()
	boom := sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, "boom")
	silent := sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the inproc.Errors of the handler has no element for this message")
	parked := sinks.Fail(sinks.Reject, sinks.ReasonRefused, "boom")
	ok := sinks.Ok("")
	tests := map[string]struct {
		err  error
		want [3]sinks.Outcome
	}{
		"all handled":          {nil, [3]sinks.Outcome{ok, ok, ok}},
		"none handled":         {errBoom, [3]sinks.Outcome{boom, boom, boom}},
		"all parked":           {inproc.Permanent(errBoom), [3]sinks.Outcome{parked, parked, parked}},
		"each":                 {inproc.Errors{nil, errBoom, inproc.Permanent(errBoom)}, [3]sinks.Outcome{ok, boom, parked}},
		"each, wrapped":        {fmt.Errorf("store: %w", inproc.Errors{nil, nil, errBoom}), [3]sinks.Outcome{ok, ok, boom}},
		"one element too few":  {inproc.Errors{nil, nil}, [3]sinks.Outcome{ok, ok, silent}},
		"no elements":          {inproc.Errors{}, [3]sinks.Outcome{silent, silent, silent}},
		"one element too many": {inproc.Errors{nil, nil, nil, errBoom}, [3]sinks.Outcome{ok, ok, ok}},
	}
	for name, test := range tests {
		sink := inproc.Batch(func(context.Context, []sinks.Message) error { return test.err }, inproc.BatchOptions{})
		for i, got := range sink.Send(t.Context(), make([]sinks.Message, 3)) {
			if stored(got) != test.want[i] {
				t.Errorf("%s: outcome %d is %+v, want %+v", name, i, got, test.want[i])
			}
		}
	}
}

func TestBatchPanic(t *testing.T) {
	t.Parallel()
	sink := inproc.Batch(func(context.Context, []sinks.Message) error { panic("no") }, inproc.BatchOptions{})
	for i, o := range sink.Send(t.Context(), make([]sinks.Message, 2)) {
		if o.Result != sinks.Retry || o.Reason != sinks.ReasonPanic {
			t.Errorf("outcome %d: %+v", i, o)
		}
	}
}

func TestBatchOrder(t *testing.T) {
	t.Parallel()
	handler := func(context.Context, []sinks.Message) error { return nil }
	if got := inproc.Batch(handler, inproc.BatchOptions{}).Order(); got != sinks.OrderNone {
		t.Errorf("the default is %d", got)
	}
	if got := inproc.Batch(handler, inproc.BatchOptions{Order: sinks.OrderAtomic}).Order(); got != sinks.OrderAtomic {
		t.Errorf("atomic is %d", got)
	}
}

func TestErrorsText(t *testing.T) {
	t.Parallel()
	for want, errs := range map[string]inproc.Errors{
		"2 of 4 messages failed, the first: boom": {nil, errBoom, nil, errors.New("bang")},
		"no message failed":                       {nil},
	} {
		if got := errs.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
