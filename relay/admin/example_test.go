package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// An application can serve the pages on its own server.
func ExampleHandler() {
	pages := admin.Handler(admin.Options{
		Sources: []admin.Source{{
			Name:    "shop",
			Healthy: func() error { return errors.New("the database has not answered for 20s") }, // a relay's Healthy
		}},
		Metrics: http.NotFoundHandler(),
		Logger:  slog.Default(),
	})
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output:
	// 503 shop: the database has not answered for 20s
}

// With a Watch and an Operator, the page shows and changes messages.
func ExampleNewWatch() {
	table := memstore.New().Store() // a sqlstore.Store, in an application
	watch := admin.NewWatch(nil, "handlers")
	running, err := relay.New(table, relay.Options{Observer: watch, Sinks: map[string]relay.SinkOptions{"handlers": {Sink: inproc.New(func(context.Context, sinks.Message) error { return nil }, inproc.Options{})}}})
	if err != nil {
		fmt.Print(err)
		return
	}
	pages := admin.Handler(admin.Options{
		Sources:       []admin.Source{{Name: "shop", Healthy: running.Healthy, Status: watch.Counting(table.Status), Operator: table, Watch: watch}},
		Metrics:       http.NotFoundHandler(),
		Logger:        slog.Default(),
		OperatorToken: "what openssl rand -hex 32 has made",
	})
	defer pages.Close() // stops running jobs
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost/api/session", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output:
	// 200 {"role":"reader","sources":["shop"],"changeable":true,"logged_in":false}
}
