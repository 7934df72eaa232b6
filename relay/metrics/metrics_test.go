package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// used returns metrics in which every metric has a value.
func used() *Metrics {
	m := New(Build{Version: "v1.2.3", Revision: "abc"})
	s := m.Source("shop", "web")
	s.Sent("web", 20*time.Millisecond, map[relay.OutcomeKind]int{
		{Result: sinks.Delivered}:                                  3,
		{Result: sinks.Retry, Reason: sinks.ReasonTimeout}:         2,
		{Result: sinks.Result(99), Reason: "made up by a plug-in"}: 1,
	})
	s.Delivered("web", "orders", 40*time.Millisecond)
	s.Delivered("web", "orders", -time.Millisecond)
	s.Settled(storage.Settled{Changed: 5, Fenced: 2, Missing: 1}, map[storage.State]int{storage.StateDone: 3, storage.StateRetry: 2, storage.StateError: 1})
	s.Parked("web", sinks.ReasonRefused)
	s.Parked("web", "made up by a plug-in")
	s.Expired("web", relay.ParkExpired)
	s.Expired("web", relay.DiscardExpired)
	s.InMemory("web", 3, 20)
	s.Called("settle", 4*time.Millisecond)
	s.LanesHeld(64, 0)
	s.LanesHeld(60, 4)
	s.SinkDown("web", sinks.ReasonConnection, "refused")
	s.Unrouted("a")
	s.Unrouted("b")
	s.Unrouted("a")
	s.Failed("read", errors.New("x"))
	s.Polled(3)
	s.show(storage.Status{
		Counts:        map[storage.State]int64{storage.StatePending: 7, storage.StateError: 1},
		OldestPending: 90 * time.Second, OldestRetry: time.Hour,
		Relays: []storage.RelayInfo{{Alive: true}, {}, {Alive: true}},
	})
	return m
}

func TestNamesAndHelpTextsAreStable(t *testing.T) {
	t.Parallel()
	families, err := used().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "rowrelay_") {
			continue
		}
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, label.GetName())
		}
		fmt.Fprintf(&got, "%s{%s} %s: %s\n", family.GetName(), strings.Join(labels, ","), strings.ToLower(family.GetType().String()), family.GetHelp())
	}
	golden(t, "testdata/names.golden", got.Bytes())
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale (go test -update rewrites it); got\n%s", file, got)
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	m := used()
	want := `
# HELP rowrelay_buffered_messages Messages in memory: waiting, being sent, or not yet settled.
# TYPE rowrelay_buffered_messages gauge
rowrelay_buffered_messages{sink="web",source="shop"} 20
# HELP rowrelay_delivered_total Messages that a sink has accepted.
# TYPE rowrelay_delivered_total counter
rowrelay_delivered_total{sink="web",source="shop"} 2
# HELP rowrelay_fenced_writes_total Settlements that changed nothing because the lease or claim belonged to another relay.
# TYPE rowrelay_fenced_writes_total counter
rowrelay_fenced_writes_total{source="shop"} 2
# HELP rowrelay_in_flight_messages Messages that are being sent.
# TYPE rowrelay_in_flight_messages gauge
rowrelay_in_flight_messages{sink="web",source="shop"} 3
# HELP rowrelay_lanes_held Lanes that this relay holds.
# TYPE rowrelay_lanes_held gauge
rowrelay_lanes_held{source="shop"} 60
# HELP rowrelay_leases_lost_total Lane leases that ended without being released.
# TYPE rowrelay_leases_lost_total counter
rowrelay_leases_lost_total{source="shop"} 4
# HELP rowrelay_messages Messages in the table, by state.
# TYPE rowrelay_messages gauge
rowrelay_messages{source="shop",state="error"} 1
rowrelay_messages{source="shop",state="pending"} 7
# HELP rowrelay_stale_writes_total Settlements that changed nothing because the row had been settled or removed.
# TYPE rowrelay_stale_writes_total counter
rowrelay_stale_writes_total{source="shop"} 1
# HELP rowrelay_oldest_pending_seconds Age of the oldest message that could be delivered now; 0 if none exists.
# TYPE rowrelay_oldest_pending_seconds gauge
rowrelay_oldest_pending_seconds{source="shop"} 90
# HELP rowrelay_oldest_retry_seconds Age of the oldest message that waits for another attempt; 0 if none exists.
# TYPE rowrelay_oldest_retry_seconds gauge
rowrelay_oldest_retry_seconds{source="shop"} 3600
# HELP rowrelay_outcomes_total Outcomes that sinks reported, one for each attempt of a message.
# TYPE rowrelay_outcomes_total counter
rowrelay_outcomes_total{reason="",result="delivered",sink="web",source="shop"} 3
rowrelay_outcomes_total{reason="other",result="other",sink="web",source="shop"} 1
rowrelay_outcomes_total{reason="timeout",result="retry",sink="web",source="shop"} 2
# HELP rowrelay_parked_total Messages that were parked as errors. Only an operator can requeue them.
# TYPE rowrelay_parked_total counter
rowrelay_parked_total{reason="crash",sink="web",source="shop"} 0
rowrelay_parked_total{reason="exhausted",sink="web",source="shop"} 0
rowrelay_parked_total{reason="expired",sink="web",source="shop"} 1
rowrelay_parked_total{reason="invalid",sink="web",source="shop"} 0
rowrelay_parked_total{reason="other",sink="web",source="shop"} 1
rowrelay_parked_total{reason="refused",sink="web",source="shop"} 1
rowrelay_parked_total{reason="too_large",sink="web",source="shop"} 0
rowrelay_parked_total{reason="unroutable",sink="web",source="shop"} 0
# HELP rowrelay_relays_alive Relays of the table that are alive, in all processes.
# TYPE rowrelay_relays_alive gauge
rowrelay_relays_alive{source="shop"} 2
# HELP rowrelay_retried_total Messages that were scheduled for another attempt.
# TYPE rowrelay_retried_total counter
rowrelay_retried_total{source="shop"} 2
# HELP rowrelay_sink_up 1 if the sink is available, 0 if it is unavailable. The relay notices an unavailable sink when it opens the sink or sends messages.
# TYPE rowrelay_sink_up gauge
rowrelay_sink_up{sink="web",source="shop"} 0
# HELP rowrelay_unrouted_topics Topics whose messages wait because no route matches them, or their sink has no handler or destination for them.
# TYPE rowrelay_unrouted_topics gauge
rowrelay_unrouted_topics{source="shop"} 2
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "rowrelay_delivered_total", "rowrelay_buffered_messages", "rowrelay_in_flight_messages", "rowrelay_oldest_retry_seconds",
		"rowrelay_fenced_writes_total", "rowrelay_lanes_held", "rowrelay_leases_lost_total", "rowrelay_messages",
		"rowrelay_stale_writes_total", "rowrelay_oldest_pending_seconds", "rowrelay_outcomes_total", "rowrelay_parked_total",
		"rowrelay_relays_alive", "rowrelay_retried_total", "rowrelay_sink_up", "rowrelay_unrouted_topics"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(m.registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// The metrics can be registered in a registry that has the collectors of Go and of the process, such as the default one.
func TestMetricsJoinAnExistingRegistry(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := used()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	m.Source("warehouse", "web") // after the registration
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	own, others := 0, 0
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "rowrelay_") {
			own++
		} else {
			others++
		}
	}
	if own < 25 || others < 30 {
		t.Errorf("%d metrics of rowrelay and %d others were gathered", own, others)
	}
	if !registry.Unregister(m) {
		t.Error("the metrics can't be unregistered")
	}
}

func TestEveryMetricOfASourceStartsAtZero(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	s := m.Source("shop", "web", "queue")
	s.SinkDown("queue", sinks.ReasonAuth, "")
	s.SinkUp("handlers") // an App makes this sink later
	scraped := scrape(t, m)
	for _, line := range []string{
		`rowrelay_delivered_total{sink="web",source="shop"} 0`,
		`rowrelay_parked_total{reason="refused",sink="web",source="shop"} 0`,
		`rowrelay_unrouted_topics{source="shop"} 0`,
		`rowrelay_sink_up{sink="web",source="shop"} 1`,
		`rowrelay_sink_up{sink="queue",source="shop"} 0`,
		`rowrelay_sink_up{sink="handlers",source="shop"} 1`,
		`rowrelay_parked_total{reason="refused",sink="handlers",source="shop"} 0`,
		`rowrelay_lag_seconds_count{sink="web",source="shop"} 0`,
		`go_goroutines `,
	} {
		if !strings.Contains(scraped, line) {
			t.Errorf("%q isn't in\n%s", line, scraped)
		}
	}
}

var failing = regexp.MustCompile(`[fF]ailed\("([a-z ]+)"`)

func TestEachStageStartsAtZero(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	m := New(Build{})
	m.Source("shop")
	scraped, found := scrape(t, m), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, stage := range failing.FindAllStringSubmatch(string(text), -1) {
			if found++; !strings.Contains(scraped, `rowrelay_failures_total{source="shop",stage="`+stage[1]+`"} 0`) {
				t.Errorf("%s reports failures of the stage %q, whose counter doesn't begin at 0", file, stage[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d places were found where a relay reports a failure", found)
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d, %v", answer.Code, err)
	}
	return string(body)
}

func TestATopicThatFoundItsRouteIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New(Build{})
		s := m.Source("shop")
		s.Unrouted("a")
		s.Unrouted("b")
		time.Sleep(unroutedFor)
		s.Unrouted("b")
		if got := testutil.ToFloat64(m.unrouted); got != 2 {
			t.Errorf("%v topics when their last report is unroutedFor old, want 2", got)
		}
		time.Sleep(time.Millisecond)
		if got := testutil.ToFloat64(m.unrouted); got != 1 {
			t.Errorf("%v topics after that, want 1", got)
		}
	})
}

func TestUnroutedTopicsAreBounded(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	s := m.Source("shop")
	for i := range maxUnrouted + 10 {
		s.Unrouted(fmt.Sprint("topic-", i))
	}
	if got := testutil.ToFloat64(m.unrouted); got != maxUnrouted {
		t.Errorf("%v topics, want %d", got, maxUnrouted)
	}
}

// table has a method Status that can be slow or fail.
type table struct {
	calls atomic.Int64
	took  atomic.Int64 // a time.Duration
	gone  atomic.Bool
}

func (c *table) Status(ctx context.Context) (storage.Status, error) {
	c.calls.Add(1)
	select {
	case <-ctx.Done():
		return storage.Status{}, ctx.Err()
	case <-time.After(time.Duration(c.took.Load())):
	}
	if c.gone.Load() {
		return storage.Status{}, errors.New("gone")
	}
	return storage.Status{Counts: map[storage.State]int64{storage.StatePending: 1}}, nil
}

func TestWatchCountsEvery15SecondsAndForgetsWhatItCannotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := New(Build{})
		s := m.Source("shop")
		ctx, cancel := context.WithCancel(t.Context())
		counter := &table{}
		ended := make(chan struct{})
		go func() { s.Watch(ctx, counter.Status); close(ended) }()

		after := func(wait time.Duration, calls int64, shown, failures int) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if counter.calls.Load() != calls {
				t.Errorf("counted %d times, want %d", counter.calls.Load(), calls)
			}
			if got := testutil.CollectAndCount(m.messages); got != shown {
				t.Errorf("%d gauges, want %d", got, shown)
			}
			if got := testutil.ToFloat64(m.failures.WithLabelValues("shop", "status")); got != float64(failures) {
				t.Errorf("%v failures, want %d", got, failures)
			}
		}
		after(time.Second, 1, 1, 0)
		counter.gone.Store(true)
		after(15*time.Second, 2, 0, 1)
		counter.gone.Store(false)
		counter.took.Store(int64(time.Hour))
		after(15*time.Second, 3, 0, 1)
		after(10*time.Second, 3, 0, 2)
		counter.took.Store(0)
		after(20*10*time.Second-2*time.Second, 3, 0, 2)
		after(time.Second, 4, 1, 2)
		cancel()
		<-ended
	})
}

func TestWatchingThatWasStoppedIsNoFailure(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	slow := &table{}
	slow.took.Store(int64(time.Hour))
	m.Source("shop").Watch(ctx, slow.Status)
	if got := testutil.ToFloat64(m.failures.WithLabelValues("shop", "status")); got != 0 {
		t.Errorf("%v failures, want none", got)
	}
}

// If a part of the status could not be read in time, its gauges are removed, and the other gauges stay.
func TestAnAbsentGaugeIsGoneAlone(t *testing.T) {
	t.Parallel()
	m := New(Build{})
	s := m.Source("a")
	status := storage.Status{Counts: map[storage.State]int64{storage.StatePending: 7}, OldestPending: time.Minute, Relays: []storage.RelayInfo{{Alive: true}}}
	s.show(status)
	status.Counts, status.Absent = nil, []storage.Gauge{storage.GaugeCounts, storage.GaugeHeldKeys}
	s.show(status)
	if n := testutil.CollectAndCount(m.messages) + testutil.CollectAndCount(m.held) + testutil.CollectAndCount(m.oldestHeld); n != 0 {
		t.Errorf("%d gauges remain although their part of the status is absent", n)
	}
	if testutil.ToFloat64(m.relays) != 1 || testutil.ToFloat64(m.oldest) != 60 {
		t.Error("gauges were removed although their part of the status was read")
	}
}
