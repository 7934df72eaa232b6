package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
)

// follow starts a daemon with another configuration, which replaces the running daemon.
func follow(t *testing.T, before *App, configuration config.Config) *App {
	t.Helper()
	next, err := before.prepare(t.Context(), configuration, func(*source) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	before.handOver(next)
	if err := before.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := next.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return next
}

// A new configuration stops no jobs, except those on a table that the new configuration doesn't have. The page keeps its charts
// and failed logins, because these belong to the process.
func TestAJobSurvivesANewConfiguration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"another source": {func(c *config.Config) {
			c.Sources = append(c.Sources, config.Source{Name: "b", Table: "outbox", Lease: time.Second, DrainTimeout: time.Hour})
		}, "running"},
		"another table":    {func(c *config.Config) { c.Sources[0].Table = "other" }, "stopped"},
		"without a source": {func(c *config.Config) { c.Sources[0].Name = "b" }, "stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench("a", "b")
			var pages atomic.Int64 // the number of open page tables
			options := b.options(t)
			options.OpenPage = func(_ context.Context, source config.Source) (PageTable, error) {
				pages.Add(1)
				store := b.tables[source.Name].Store()
				return PageTable{Operator: store, Reads: store, Close: func() error { pages.Add(-1); return nil }}, nil
			}
			const token = "the-token-of-operators"
			c := b.config("a")
			c.Admin = config.Admin{Listen: "127.0.0.1:0", OperatorToken: token}
			first := make1(t, c, options)
			if err := first.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			const many = 300 // five minutes of work at one per second
			for i := range many {
				b.write("a", fmt.Sprint(i))
			}
			for range many {
				<-b.sent
			}
			waitFor(t, first, "/status", fmt.Sprintf(`"done":%d`, many))
			ask := func(a *App, method, path, body string) string {
				request, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr()+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Authorization", "Bearer "+token)
				request.Header.Set("Content-Type", "application/json")
				answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = answer.Body.Close() }()
				text, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			if got := ask(first, "POST", "/api/jobs", `{"action":"replay","all":true,"select":{},"name":"again","rate":1}`); !strings.Contains(got, `"state":"running"`) {
				t.Fatalf("the job is %s", got)
			}
			changed := c
			changed.Sources = append([]config.Source{}, c.Sources...)
			test.change(&changed)
			next := follow(t, first, changed)
			waitFor(t, next, "/readyz", "200 ") // a relay that is stopped before it has started returns an error
			if got := ask(next, "GET", "/api/jobs", ""); test.want == "running" && strings.Contains(got, "stopped") || test.want == "stopped" && !strings.Contains(got, "stopped") {
				t.Errorf("the job is %s, want %s", got, test.want)
			}
			if err := next.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := pages.Load(); n != 0 {
				t.Errorf("%d tables of pages are still open", n)
			}
		})
	}
}

// After a change of the configuration, counters continue and gauges restart, so the gauges of a removed source disappear.
func TestCountersContinueWithANewConfiguration(t *testing.T) {
	t.Parallel()
	b := newBench("a", "b", "c")
	c := b.config("a", "b")
	c.Admin = config.Admin{Listen: "127.0.0.1:0"}
	first := make1(t, c, b.options(t))
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.write("a", "1", "2")
	b.write("b", "3")
	waitFor(t, first, "/metrics", `rowrelay_delivered_total{sink="all",source="a"} 2`)
	waitFor(t, first, "/metrics", `rowrelay_delivered_total{sink="all",source="b"} 1`)
	changed := c
	changed.Sources = b.config("a", "c").Sources
	next := follow(t, first, changed)
	b.write("a", "4")
	waitFor(t, next, "/metrics", `rowrelay_delivered_total{sink="all",source="a"} 3`)
	waitFor(t, next, "/metrics", `rowrelay_lag_seconds_count{sink="all",source="a"} 3`)
	waitFor(t, next, "/metrics", `rowrelay_lanes_held{source="c"} 64`)
	answer := httptest.NewRecorder()
	next.metrics.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, gone := range []string{`rowrelay_lanes_held{source="b"}`, `rowrelay_last_poll_timestamp_seconds{source="b"}`, `rowrelay_sink_up{sink="all",source="b"}`, `rowrelay_unrouted_topics{source="b"}`} {
		if strings.Contains(answer.Body.String(), gone) {
			t.Errorf("it still shows %s", gone)
		}
	}
	if err := next.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
