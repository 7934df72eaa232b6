package httpsink_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// A receiver that uses the official SDK can read the requests.
func TestOfficialSDKReadsCloudEvents(t *testing.T) {
	t.Parallel()
	for _, mode := range []cloudevents.Mode{cloudevents.Binary, cloudevents.Structured} {
		received := make(chan *event.Event, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			read, err := binding.ToEvent(r.Context(), cehttp.NewMessageFromHttpRequest(r))
			if err != nil {
				t.Errorf("%s: %v", mode, err)
			}
			received <- read
		}))
		defer server.Close()
		sink, err := httpsink.New(httpsink.Options{URL: server.URL, CloudEvents: cloudevents.Options{Mode: mode, Source: "/shop"}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sink.Close(t.Context()) }()
		m := sinks.Message{Attempt: 1, Message: outbox.Message{ID: outbox.NewID(), Topic: "order.placed", Key: "a-7", Payload: []byte(`{"n":1}`), Headers: map[string]string{"ce-tenant": "t1"}}}
		if got := sink.Send(t.Context(), []sinks.Message{m}); got[0].Result != sinks.Delivered {
			t.Fatalf("%s: %+v", mode, got)
		}
		read := <-received
		if read == nil || read.Validate() != nil || read.ID() != m.ID || read.Source() != "/shop" || read.Type() != "order.placed" || read.Subject() != m.Key ||
			read.Extensions()["tenant"] != "t1" || read.DataContentType() != "application/json" || string(read.Data()) != `{"n":1}` {
			t.Errorf("%s: the SDK reads %v", mode, read)
		}
	}
}

func TestInvalidCloudEventIsRejected(t *testing.T) {
	t.Parallel()
	sink, err := httpsink.New(httpsink.Options{URL: "http://127.0.0.1:1/", CloudEvents: cloudevents.Options{Mode: cloudevents.Binary, Source: "/shop"}})
	if err != nil {
		t.Fatal(err)
	}
	m := sinks.Message{Message: outbox.Message{ID: outbox.NewID(), Topic: "t", Headers: map[string]string{"ce-time": "noon"}}}
	if got := sink.Send(t.Context(), []sinks.Message{m})[0]; got.Result != sinks.Reject || got.Reason != sinks.ReasonInvalid {
		t.Errorf("got %+v", got)
	}
}
