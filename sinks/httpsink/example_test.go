package httpsink_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

func Example() {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("%s %s: %s (key %s)\n", r.Method, r.Header.Get("Rowrelay-Topic"), body, r.Header.Get("Rowrelay-Key"))
		w.WriteHeader(http.StatusAccepted)
	}))
	defer endpoint.Close()

	sink, err := httpsink.New(httpsink.Options{
		URL:         endpoint.URL,
		BearerToken: "from-a-safe-place",
		Timeout:     5 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	outcomes := sink.Send(ctx, []sinks.Message{
		{Message: outbox.Message{ID: "0195c0de-0000-7000-8000-000000000001", Topic: "orders", Key: "42", Payload: []byte(`{"order":42}`)}, Attempt: 1},
	})
	fmt.Println(outcomes[0].Result, outcomes[0].Receipt)
	if err := sink.Close(ctx); err != nil {
		panic(err)
	}
	// Output:
	// POST orders: {"order":42} (key 42)
	// delivered 202
}
