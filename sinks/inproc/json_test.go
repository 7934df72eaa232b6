package inproc_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

type order struct {
	ID    int       `json:"id"`
	Small int8      `json:"small"`
	Paid  time.Time `json:"paid"`
	Odd   odd       `json:"odd"`
}

// odd is a type that decodes itself.
type odd struct{}

func (*odd) UnmarshalJSON(text []byte) error { return errors.New("odd: " + string(text)) }

func TestJSON(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		payload []byte
		want    sinks.Outcome
	}{
		"good":                   {[]byte(`{"id":7,"unknown":true}`), sinks.Ok("")},
		"NULL":                   {nil, misfit("it is NULL")},
		"empty":                  {[]byte{}, misfit("it is not valid JSON at byte 0")},
		"no JSON":                {[]byte(`{"id":s3cret}`), misfit("it is not valid JSON at byte 7")},
		"trailing data":          {[]byte(`{"id":7} s3cret`), misfit("it is not valid JSON at byte 10")},
		"wrong type":             {[]byte(`{"id":"s3cret"}`), misfit("a JSON string at byte 14 doesn't fit the field id of type int")},
		"too large":              {[]byte(`{"small":31337}`), misfit("a JSON number at byte 14 doesn't fit the field small of type int8")},
		"a list":                 {[]byte(`["s3cret"]`), misfit("a JSON array at byte 1 doesn't fit a value of type inproc_test.order")},
		"bad time":               {[]byte(`{"paid":"s3cret"}`), misfit("one of its values is not accepted")},
		"error of UnmarshalJSON": {[]byte(`{"odd":"s3cret"}`), misfit("one of its values is not accepted")},
	}
	for name, test := range tests {
		calls := 0
		sink := inproc.Func(inproc.JSON(func(_ context.Context, o order, m sinks.Message) error {
			if calls++; o.ID != 7 || m.Topic != "orders" {
				t.Errorf("%s: called with %+v, %s", name, o, m.Topic)
			}
			return nil
		}))
		o := sink.Send(t.Context(), []sinks.Message{{Message: outbox.Message{Topic: "orders", Payload: test.payload}}})[0]
		if stored(o) != test.want {
			t.Errorf("%s: %+v, want %+v", name, o, test.want)
		}
		if (calls == 1) != (o.Result == sinks.Delivered) || strings.Contains(o.Detail, "s3cret") || strings.Contains(o.Detail, "31337") {
			t.Errorf("%s: %d calls, %s", name, calls, o.Detail)
		}
	}
}

func misfit(text string) sinks.Outcome {
	return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "decode the payload into inproc_test.order: "+text)
}

func TestJSONReturnsTheHandlersError(t *testing.T) {
	t.Parallel()
	handler := inproc.JSON(func(context.Context, json.RawMessage, sinks.Message) error { return errBoom })
	if err := handler(t.Context(), sinks.Message{Message: outbox.Message{Payload: []byte("1")}}); !errors.Is(err, errBoom) {
		t.Errorf("the error is %v", err)
	}
}
