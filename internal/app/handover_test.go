package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
)

// A new configuration ends no job, and the page keeps its charts and failed attempts: they belong to the process. Jobs end with
// their table.
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
			var pages atomic.Int64 // that are open
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
			const many = 300 // which take five minutes at one a second
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
			next, err := first.prepare(t.Context(), changed, func(*source) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			first.handOver(next)
			if err := first.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := next.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitFor(t, next, "/readyz", "200 ") // a relay that is stopped while it starts says so
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
