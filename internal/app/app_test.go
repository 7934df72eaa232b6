package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench provides what a daemon needs: a table in memory for each source, and a kind of
// sink that collects messages.
type bench struct {
	tables map[string]*memstore.DB
	opened atomic.Int32 // how many tables were opened
	closed chan string  // the sources whose tables were closed
	fails  map[string]error

	mu   sync.Mutex
	got  []string
	hold chan struct{} // if it isn't nil, Send waits for its context
	sent chan string   // receives each message
}

func newBench(sources ...string) *bench {
	b := &bench{tables: map[string]*memstore.DB{}, fails: map[string]error{}, closed: make(chan string, 10), sent: make(chan string, 1000)}
	for _, name := range sources {
		b.tables[name] = memstore.New()
	}
	return b
}

func (b *bench) Open(context.Context) error  { return nil }
func (b *bench) Close(context.Context) error { return nil }

func (b *bench) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	for _, m := range batch {
		b.mu.Lock()
		b.got = append(b.got, string(m.Payload))
		b.mu.Unlock()
		b.sent <- string(m.Payload)
	}
	if b.hold != nil {
		<-ctx.Done()
		return sinks.All(len(batch), sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))
	}
	return sinks.All(len(batch), sinks.Ok(""))
}

func (b *bench) options(t *testing.T) Options {
	t.Helper()
	registry, err := sinks.NewRegistry(sinks.Kind{Name: "collect", New: func(settings.Values) (sinks.Sink, error) { return b, nil }})
	if err != nil {
		t.Fatal(err)
	}
	open := func(_ context.Context, source config.Source) (Table, error) {
		if err := b.fails[source.Name]; err != nil {
			return Table{}, err
		}
		b.opened.Add(1)
		closing := func() error { b.closed <- source.Name; return nil }
		return Table{Store: b.tables[source.Name].Store(), Close: closing}, nil
	}
	return Options{Open: open, Sinks: registry, Logger: slog.New(slog.DiscardHandler)}
}

func (b *bench) config(names ...string) config.Config {
	c := config.Config{Sinks: []config.Sink{{Name: "all", Type: "collect"}}}
	for _, name := range names {
		c.Sources = append(c.Sources, config.Source{Name: name, Table: "outbox", Lease: time.Second, DrainTimeout: time.Hour})
	}
	return c
}

func (b *bench) write(source string, payloads ...string) {
	for _, payload := range payloads {
		b.tables[source].Write(outbox.Message{Topic: "t", Payload: []byte(payload)})
	}
}

func (b *bench) closedTables() (names []string) {
	for len(b.closed) > 0 {
		names = append(names, <-b.closed)
	}
	return names
}

func make1(t *testing.T, c config.Config, o Options) *App {
	t.Helper()
	a, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDrainDeliversAllSources(t *testing.T) {
	t.Parallel()
	b := newBench("a", "b")
	b.write("a", "1", "2")
	b.write("b", "3")
	options := b.options(t)
	options.Drain = true
	if err := make1(t, b.config("a", "b"), options).Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	slices.Sort(b.got)
	if !slices.Equal(b.got, []string{"1", "2", "3"}) {
		t.Errorf("got %v", b.got)
	}
	if closed := b.closedTables(); !slices.Equal(closed, []string{"b", "a"}) {
		t.Errorf("closed %v, want the last opened first", closed)
	}
}

func TestTheFirstSignalStopsCleanly(t *testing.T) {
	t.Parallel()
	b := newBench("a")
	b.write("a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-b.sent; cancel() }()
	if err := make1(t, b.config("a"), b.options(t)).Run(ctx, nil); err != nil {
		t.Fatal(err)
	}
	status, err := b.tables["a"].Store().Status(t.Context())
	if err != nil || status.Counts[storage.StateDone] != 1 || status.LanesLeased != 0 {
		t.Errorf("left %+v, %v; want the message done and no lane leased", status, err)
	}
}

func TestTheSecondSignalDoesNotWaitForSends(t *testing.T) {
	t.Parallel()
	b := newBench("a")
	b.hold = make(chan struct{})
	b.write("a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	abort := make(chan struct{})
	go func() { <-b.sent; cancel(); close(abort) }()
	start := time.Now()
	if err := make1(t, b.config("a"), b.options(t)).Run(ctx, abort); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %v of a drain timeout of an hour", took)
	}
	status, err := b.tables["a"].Store().Status(t.Context())
	if err != nil || status.Counts[storage.StatePending] != 1 {
		t.Errorf("left %+v, %v; want the message pending", status, err)
	}
}

func TestDrainFailsIfASourceIsDown(t *testing.T) {
	t.Parallel()
	b := newBench("a", "b")
	gone := errors.New("connection refused")
	b.fails["b"] = gone
	options := b.options(t)
	options.Drain = true
	err := make1(t, b.config("a", "b"), options).Run(t.Context(), nil)
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), `source "b"`) {
		t.Errorf("got %v, want the source and the cause", err)
	}
	if closed := b.closedTables(); !slices.Equal(closed, []string{"a"}) {
		t.Errorf("closed %v, want what was opened", closed)
	}
}

func TestFailedRelayStopsTheDaemon(t *testing.T) {
	t.Parallel()
	b := newBench("a", "b")
	other := b.tables["b"].Store()
	if err := other.SetClaimMode(t.Context(), storage.ByRows); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Heartbeat(t.Context(), storage.Identity{Name: "other", Claim: storage.ByRows}, time.Hour); err != nil {
		t.Fatal(err)
	}
	err := make1(t, b.config("a", "b"), b.options(t)).Run(t.Context(), nil)
	if !errors.Is(err, storage.ErrOtherClaim) || !strings.Contains(err.Error(), `source "b"`) {
		t.Errorf("got %v, want the source and the cause", err)
	}
	if closed := b.closedTables(); len(closed) != 2 {
		t.Errorf("closed %v, want both", closed)
	}
}

func TestInvalidRelayOptionsFailTheStart(t *testing.T) {
	t.Parallel()
	b := newBench("a")
	c := b.config("a")
	c.Sources[0].Lease = time.Millisecond
	if err := make1(t, c, b.options(t)).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "lease") {
		t.Errorf("got %v, want an error about the lease", err)
	}
}

func TestNewReportsAllInvalidSinks(t *testing.T) {
	t.Parallel()
	b := newBench("a", "b")
	c := b.config("a", "b")
	c.Sinks[0].Type = "unheard-of"
	_, err := New(c, b.options(t))
	if err == nil || strings.Count(err.Error(), "unheard-of") != 2 {
		t.Errorf("got %v, want one error per source", err)
	}
	if _, err := New(config.Config{}, b.options(t)); err == nil {
		t.Error("a daemon without sources was made")
	}
}

func TestUsedAdminAddressFailsTheStart(t *testing.T) {
	t.Parallel()
	b := newBench("a")
	c := b.config("a")
	c.Admin.Listen = "127.0.0.1:99999"
	if err := make1(t, c, b.options(t)).Start(t.Context()); err == nil {
		t.Error("it started")
	}
	if closed := b.closedTables(); !slices.Equal(closed, []string{"a"}) {
		t.Errorf("closed %v, want what was opened", closed)
	}
}

func TestAdminServerReportsAnUnavailableDatabase(t *testing.T) {
	t.Parallel()
	b := newBench("a")
	gone := make(chan struct{})
	b.tables["a"].Hooks.Fail = func(context.Context, memstore.Op) error {
		select {
		case <-gone:
			return errors.New("connection refused")
		default:
			return nil
		}
	}
	c := b.config("a")
	c.Admin.Listen = "127.0.0.1:0"
	c.Sources[0].DrainTimeout = time.Millisecond
	a := make1(t, c, b.options(t))
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.write("a", "1")
	<-b.sent
	waitFor(t, a, "/readyz", "200 a: ok")
	waitFor(t, a, "/metrics", `rowrelay_delivered_total{sink="all",source="a"} 1`)
	waitFor(t, a, "/metrics", `rowrelay_messages{source="a",state="pending"} `)
	close(gone)
	waitFor(t, a, "/readyz", "503 a: the database has not answered for")
	waitFor(t, a, "/healthz", "200 ok")
	if err := a.Stop(t.Context()); err == nil {
		t.Error("Stop returned no error about the lanes that it couldn't release")
	}
}

// waitFor requests a page until it contains the text.
func waitFor(t *testing.T, a *App, path, want string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for limit := time.Now().Add(5 * time.Minute); time.Now().Before(limit); {
		answer, err := client.Get("http://" + a.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			t.Fatal(err)
		}
		last = fmt.Sprint(answer.StatusCode, " ", string(body))
		if strings.Contains(last, want) {
			return
		}
		<-tick.C
	}
	t.Fatalf("%s never answered %q, but %s", path, want, last)
}

func TestNewLogger(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]config.Log{
		"level=INFO msg=b":         {},
		`"level":"WARN","msg":"c"`: {Level: slog.LevelWarn, Format: config.JSON},
	} {
		var out strings.Builder
		logger := NewLogger(c, &out)
		logger.Debug("a")
		logger.Info("b")
		logger.Warn("c")
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "msg=a") {
			t.Errorf("got %s, want %s in it", &out, want)
		}
	}
}
