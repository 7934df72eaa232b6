package browser

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// The requests and answers of every route have the schemas of the file that the server serves. The schemas allow no other fields.
func TestAnswersHaveTheSchemasOfTheOpenAPIFile(t *testing.T) {
	for _, target := range testdb.Each() {
		if target.Name == "sqlite/modernc" {
			checkAnswers(t, newAPI(t, target.OpenOutbox(t)))
		}
	}
}

// newAPI returns the pages of a table with messages in all states, pauses, failed attempts and a trace.
func newAPI(t *testing.T, db testdb.Database) *admin.Pages {
	t.Helper()
	d, err := dialect.ByName(db.Kind)
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.Open(t.Context(), db.DB, d, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	writer, err := outbox.NewWriter(d, outbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, m outbox.Message) error {
		return writer.Write(ctx, outbox.WithoutTransaction(db.DB), m)
	}
	shop := &shop{refuses: map[string]string{"parked": "no"}, fails: map[string]bool{"retried": true}, got: map[string]int{}}
	watch, quiet := admin.NewWatch(nil, "main"), slog.New(slog.DiscardHandler)
	running, err := relay.New(store, relay.Options{Name: "r", Observer: watch, Logger: quiet, Retention: time.Hour, Sinks: map[string]relay.SinkOptions{"main": {
		Sink: shop, OnPark: relay.HoldKey, JudgeAloneAfter: relay.JudgeAtOnce, Backoff: relay.Backoff{Min: decade, Max: decade}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []outbox.Message{
		{Topic: "parked", Key: "k", Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}, {Topic: "waits", Key: "k", Payload: []byte{0xff}},
		{Topic: "retried", Key: "r"}, {Topic: "fine", Key: "f", Payload: []byte("{}"), ExpiresAt: time.Now().Add(time.Hour)}, {Topic: "later", AvailableAt: time.Now().Add(time.Hour)},
	} {
		if err := write(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, control := range []storage.Control{{Kind: storage.PauseTopic, Name: "t", By: "Ann", Reason: "why"}, {Kind: storage.LimitSink, Name: "main", Rate: 1000}} {
		if err := store.SetControl(t.Context(), control, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	for counts := map[storage.State]int64{}; counts[storage.StateDone] != 1 || counts[storage.StateError] != 1 || counts[storage.StateRetry] != 1; {
		status, err := store.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts = status.Counts
	}
	watch.SinkDown("main", sinks.ReasonConnection, "refused")
	pages := admin.Handler(admin.Options{
		Sources: []admin.Source{{Name: "shop", Healthy: func() error { return nil }, Status: watch.Counting(store.Status), Operator: store, Watch: watch, Write: write}},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/plain") }), Logger: quiet, OperatorToken: operatorToken,
		TraceURL: "https://traces.example/{trace_id}", UserHeader: "X-User", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
	})
	t.Cleanup(func() {
		pages.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return pages
}

func checkAnswers(t *testing.T, pages *admin.Pages) {
	ask := func(method, path, body string, headers ...string) (*http.Request, *httptest.ResponseRecorder) {
		request := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
		request.Header.Set("Authorization", "Bearer "+operatorToken)
		request.Header.Set("X-User", "Ann")
		if body != "" {
			request.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		answer := httptest.NewRecorder()
		pages.ServeHTTP(answer, request)
		return request, answer
	}
	_, served := ask("GET", "/api/openapi.yaml", "")
	file, err := openapi3.NewLoader().LoadFromData(served.Body.Bytes())
	if err == nil {
		err = file.Validate(t.Context())
	}
	if err != nil {
		t.Fatalf("the file: %v", err)
	}
	router, err := gorillamux.NewRouter(file)
	if err != nil {
		t.Fatal(err)
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	seen := map[string]bool{}
	check := func(code int, method, path, body string, headers ...string) string {
		t.Helper()
		request, answer := ask(method, path, body, headers...)
		text := answer.Body.String()
		if answer.Code != code {
			t.Errorf("%s %s got %d %s, want %d", method, path, answer.Code, text, code)
		}
		again, _ := http.NewRequest(method, request.URL.String(), strings.NewReader(body))
		again.Header = request.Header
		route, values, err := router.FindRoute(again)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
			return text
		}
		seen[route.Method+" "+route.Path] = true
		input := &openapi3filter.RequestValidationInput{Request: again, PathParams: values, Route: route, Options: options}
		if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil && code < 400 {
			t.Errorf("the request %s %s %s: %v", method, path, body, err)
		}
		output := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: answer.Code, Header: answer.Header(), Options: options}
		output.SetBodyBytes(bytes.Clone(answer.Body.Bytes()))
		if err := openapi3filter.ValidateResponse(t.Context(), output); err != nil {
			t.Errorf("the answer of %s %s: %v\n%s", method, path, err, text)
		}
		return text
	}
	field := func(text, name string) string {
		t.Helper()
		_, rest, found := strings.Cut(text, `"`+name+`":"`)
		value, _, _ := strings.Cut(rest, `"`)
		if !found {
			t.Errorf("there is no %s in %s", name, text)
		}
		return value
	}

	check(200, "GET", "/healthz", "")
	check(200, "GET", "/readyz", "")
	check(200, "GET", "/readyz", "", "Accept", "application/json")
	check(200, "GET", "/metrics", "")
	check(200, "GET", "/status", "")
	check(200, "GET", "/api/session", "")
	check(200, "POST", "/api/login", fmt.Sprintf(`{"token":%q}`, operatorToken))
	check(200, "POST", "/api/logout", "{}")
	check(415, "POST", "/api/login", "{}", "Content-Type", "text/plain")
	check(200, "GET", "/api/overview", "")
	check(200, "GET", "/api/history", "")
	check(200, "GET", "/api/history?sink=main", "")
	check(404, "GET", "/api/history?sink=nowhere", "")
	check(404, "GET", "/api/overview?source=nowhere", "")
	for _, state := range []string{"pending", "claimed", "scheduled", "retry", "error", "done"} {
		check(200, "GET", "/api/messages?limit=1&topic_prefix=f&state="+state, "")
	}
	check(200, "GET", "/api/messages?limit=2", "")
	check(200, "GET", "/api/messages?id=1&id=2", "")
	check(400, "GET", "/api/messages?since=x", "")
	for id := range 5 {
		check(200, "GET", fmt.Sprintf("/api/messages/%d", id+1), "")
	}
	check(404, "GET", "/api/messages/99", "")
	for _, key := range []string{"k", "r", "f", "nothing"} {
		check(200, "GET", "/api/keys?key="+key, "")
	}
	check(400, "GET", "/api/keys", "")
	check(200, "POST", "/api/messages", `{"copy_of":"1","payload":"x","by":"Ann","reason":"why"}`)
	check(200, "POST", "/api/messages", `{"copy_of":"1","payload":null}`)
	check(404, "POST", "/api/messages", `{"copy_of":"99"}`)
	check(403, "POST", "/api/messages", `{"copy_of":"1"}`, "Authorization", "")
	preview := check(202, "POST", "/api/jobs", `{"action":"requeue","select":{"ids":["1"]},"preview":true}`)
	check(202, "POST", "/api/jobs", fmt.Sprintf(`{"plan":%q,"rate":0,"reason":"why"}`, field(preview, "id")))
	check(202, "POST", "/api/jobs", `{"action":"replay","select":{"state":"done"},"name":"r1","rate":1000}`)
	check(400, "POST", "/api/jobs", `{"action":"replay"}`)
	check(409, "POST", "/api/jobs", `{"plan":"9.elsewhere"}`)
	check(200, "GET", "/api/jobs", "")
	check(200, "GET", "/api/jobs/"+field(preview, "id"), "")
	check(404, "GET", "/api/jobs/x", "")
	check(200, "POST", "/api/jobs/"+field(preview, "id")+"/stop", "{}")
	check(200, "GET", "/api/replays", "")
	check(200, "POST", "/api/replays/r1/stop", "{}")
	check(404, "POST", "/api/replays/r2/stop", "{}")
	check(200, "POST", "/api/controls", `{"kind":"topic","name":"t2","for":"2h","by":"Ann","reason":"why"}`)
	check(200, "POST", "/api/controls/lift", `{"kind":"topic","name":"t2"}`)
	check(404, "POST", "/api/controls/lift", `{"kind":"topic","name":"t2"}`)
	check(200, "GET", "/api/actions", "")
	for path, item := range file.Paths.Map() {
		for method := range item.Operations() {
			if !seen[method+" "+path] {
				t.Errorf("no request was made to %s %s", method, path)
			}
		}
	}
}
