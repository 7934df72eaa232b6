package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func works(name string) Source {
	return Source{
		Name:    name,
		Healthy: func() error { return nil },
		Status: func(context.Context) (storage.Status, error) {
			return storage.Status{
				Claim:         storage.ByLanes,
				Counts:        map[storage.State]int64{storage.StatePending: 3, storage.StateDone: 9},
				OldestPending: 1500 * time.Millisecond,
				LanesLeased:   64,
				Topics:        map[string]int64{"orders": 3},
			}, nil
		},
	}
}

func broken(name string) Source {
	gone := errors.New("the database is gone")
	return Source{
		Name:    name,
		Healthy: func() error { return gone },
		Status:  func(context.Context) (storage.Status, error) { return storage.Status{}, gone },
	}
}

func options(sources ...Source) Options {
	return Options{
		Address: "127.0.0.1:0",
		Sources: sources,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "rowrelay_x 1\n") }),
		Logger:  slog.New(slog.DiscardHandler),
	}
}

func ask(o Options, method, path string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "http://127.0.0.1:8321"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	Handler(o).ServeHTTP(answer, request)
	return answer
}

func TestPages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sources      []Source
		method, path string
		accept       string
		code         int
		want         string
	}{
		"metrics":            {nil, "GET", "/metrics", "", 200, "rowrelay_x 1\n"},
		"alive":              {[]Source{broken("a")}, "GET", "/healthz", "", 200, "ok\n"},
		"ready":              {[]Source{works("a"), works("b")}, "GET", "/readyz", "", 200, "a: ok\nb: ok\n"},
		"ready, head":        {[]Source{works("a")}, "HEAD", "/readyz", "", 200, "a: ok\n"},
		"not ready":          {[]Source{works("a"), broken("b")}, "GET", "/readyz", "text/html", 503, "a: ok\nb: the database is gone\n"},
		"not ready, as JSON": {[]Source{works("a"), broken("b")}, "GET", "/readyz", "text/html;q=0.1, application/json", 503, `{"ready":false,"sources":{"a":"ok","b":"the database is gone"}}` + "\n"},
		"ready, as JSON":     {[]Source{works("a")}, "GET", "/readyz", "application/json", 200, `{"ready":true,"sources":{"a":"ok"}}` + "\n"},
		"page":               {nil, "GET", "/", "", 200, string(indexHTML)},
		"elsewhere":          {nil, "GET", "/nowhere", "", 404, "404 page not found\n"},
		"another method":     {nil, "POST", "/readyz", "", 405, "Method Not Allowed\n"},
		"metrics, deleted":   {nil, "DELETE", "/metrics", "", 405, "Method Not Allowed\n"},
		"status": {[]Source{works("a")}, "GET", "/status", "", 200, `{"sources":[{"source":"a","claim":"lanes","pending":3,"claimed":0,"scheduled":0,` +
			`"retry":0,"error":0,"done":9,"oldest_pending_seconds":1.5,"oldest_retry_seconds":0,"held_keys":0,"oldest_held_key_seconds":0,"lanes":64,"relays":[],"controls":[],"pending_topics":{"orders":3}}]}` + "\n"},
		"status of a broken one": {[]Source{broken("b")}, "GET", "/status", "", 503, `{"sources":[{"source":"b","failed":"the database is gone"}]}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := ask(options(test.sources...), test.method, test.path, "Accept", test.accept)
			if answer.Code != test.code || answer.Body.String() != test.want {
				t.Errorf("got %d %q\nwant %d %q", answer.Code, answer.Body, test.code, test.want)
			}
			if answer.Header().Get("X-Content-Type-Options") != "nosniff" || answer.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", answer.Header())
			}
		})
	}
}

func TestABrowsersRequestFromAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	if answer := ask(options(), "POST", "/readyz", "Sec-Fetch-Site", "cross-site"); answer.Code != http.StatusForbidden {
		t.Errorf("got %d, want 403", answer.Code)
	}
}

func TestServing(t *testing.T) {
	t.Parallel()
	s, err := Start(options(works("a")))
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(s.Addr())
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("listens on %q, want the loopback address", s.Addr())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + s.Addr() + "/status")
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Sources []map[string]any }
	err = json.NewDecoder(answer.Body).Decode(&body)
	if err := errors.Join(err, answer.Body.Close()); err != nil || len(body.Sources) != 1 {
		t.Errorf("got %v, %v", body, err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := client.Get("http://" + s.Addr() + "/status"); err == nil {
		t.Error("the server still serves after it was stopped")
	}
}

func TestAnAddressThatIsTakenIsNamed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o := options()
	o.Address = taken.Addr().String()
	if _, err := Start(o); err == nil || !strings.Contains(err.Error(), o.Address) {
		t.Errorf("got %v, want an error that names %s", err, o.Address)
	}
}

func TestStopWaitsForRequestsAndThenClosesThem(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patience time.Duration
		whole    bool
	}{"patient": {time.Minute, true}, "hurried": {0, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, finish := make(chan struct{}), make(chan struct{})
			o := options()
			o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				select {
				case <-finish:
					fmt.Fprint(w, "whole")
				case <-r.Context().Done():
				}
			})
			s, err := Start(o)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan string, 1)
			go func() { got <- get("http://" + s.Addr() + "/metrics") }()
			<-begun
			ctx, cancel := context.WithTimeout(t.Context(), test.patience)
			defer cancel()
			if test.whole {
				go close(finish)
			}
			if err := s.Stop(ctx); (err == nil) != test.whole {
				t.Errorf("stopped with %v", err)
			}
			if body := <-got; (body == "whole") != test.whole {
				t.Errorf("the request got %q", body)
			}
		})
	}
}

func get(url string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

func TestTablesAreCountedOnceAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := works("a")
		hangs.Status = func(ctx context.Context) (storage.Status, error) {
			<-ctx.Done()
			return storage.Status{}, ctx.Err()
		}
		handler := Handler(options(hangs))
		codes, start := make(chan string, 2), time.Now()
		for range 2 {
			go func() {
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost/status", nil))
				codes <- fmt.Sprint(answer.Code, " ", answer.Body)
			}()
		}
		first, second := <-codes, <-codes
		if took := time.Since(start); took != countTimeout {
			t.Errorf("took %v, want %v", took, countTimeout)
		}
		for _, answer := range []string{first, second} {
			if !strings.HasPrefix(answer, "503 ") {
				t.Errorf("got %s, want 503", answer)
			}
		}
	})
}
