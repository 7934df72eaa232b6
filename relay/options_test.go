package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestNewReportsAllProblems(t *testing.T) {
	t.Parallel()
	good := func() relay.Options { return relay.Options{Sinks: to(&recorder{})} }
	tests := map[string]struct {
		change func(*relay.Options)
		want   []string // empty: the options are valid
	}{
		"the defaults":            {func(*relay.Options) {}, nil},
		"no sink":                 {func(o *relay.Options) { o.Sinks = nil }, []string{"sinks: at least one is required"}},
		"the shortest lease":      {func(o *relay.Options) { o.Lease = time.Second }, nil},
		"a lease that is shorter": {func(o *relay.Options) { o.Lease = time.Second - 1 }, []string{"lease 999.999999ms"}},
		"the shortest poll":       {func(o *relay.Options) { o.Poll = time.Millisecond }, nil},
		"a poll that is shorter":  {func(o *relay.Options) { o.Poll = time.Millisecond - 1 }, []string{"poll 999.999µs"}},
		"keep nothing":            {func(o *relay.Options) { o.Retention = relay.KeepNothing }, nil},
		"a negative retention":    {func(o *relay.Options) { o.Retention = -2 }, []string{"retention -2ns"}},
		"an unknown claim":        {func(o *relay.Options) { o.Claim = "both" }, []string{`claim "both"`}},
		"picking by lanes":        {func(o *relay.Options) { o.Pick = storage.Newest }, []string{"only a relay that claims by rows"}},
		"topics by lanes":         {func(o *relay.Options) { o.Topics = []string{"a"} }, []string{"topics: only"}},
		"picking by rows":         {func(o *relay.Options) { o.Claim, o.Pick, o.Topics = storage.ByRows, storage.Priority, []string{"a"} }, nil},
		"a sink that is nil":      {func(o *relay.Options) { o.Sinks["main"] = relay.SinkOptions{} }, []string{`sink "main": the sink is nil`}},
		"a negative batch":        {func(o *relay.Options) { o.Sinks["main"] = relay.SinkOptions{Sink: &recorder{}, Batch: -1} }, []string{"batch -1"}},
		"back-off upside down": {func(o *relay.Options) {
			o.Sinks["main"] = relay.SinkOptions{Sink: &recorder{}, Backoff: relay.Backoff{Min: 2, Max: 1}}
		}, []string{"backoff: min 2ns"}},
		"a route to nowhere":       {func(o *relay.Options) { o.Routes = []relay.Route{{Topic: "a", Sink: "b"}} }, []string{`there is no sink "b"`}},
		"a route without a match":  {func(o *relay.Options) { o.Routes = []relay.Route{{Sink: "main"}} }, []string{"exactly one of topic, prefix and pattern"}},
		"a bad pattern":            {func(o *relay.Options) { o.Routes = []relay.Route{{Pattern: "(", Sink: "main"}} }, []string{`pattern "("`}},
		"two sinks without routes": {func(o *relay.Options) { o.Sinks["x"] = relay.SinkOptions{Sink: &recorder{}} }, []string{"required if there are several sinks (2 here)"}},
		"two problems":             {func(o *relay.Options) { o.Lease, o.Poll = 1, 1 }, []string{"lease 1ns", "poll 1ns"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := good()
			test.change(&options)
			_, err := relay.New(memstore.New().Store(), options)
			if (err == nil) != (test.want == nil) {
				t.Fatalf("New: %v", err)
			}
			if err != nil && strings.Count(err.Error(), "\n")+1 != len(test.want) {
				t.Errorf("the error lists other problems, too: %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error doesn't say %q: %v", part, err)
				}
			}
		})
	}
}

// No sink may have an empty name, or the name of the queue for messages without a route.
func TestSinksNeedUniqueNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", " ", "(unrouted)"} {
		if _, err := relay.New(memstore.New().Store(), relay.Options{Sinks: map[string]relay.SinkOptions{name: {Sink: &recorder{}}}}); err == nil || !strings.Contains(err.Error(), "another name") {
			t.Errorf("a sink named %q: %v", name, err)
		}
	}
}

func TestRunRefusesAnotherClaimMode(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	store := db.Store()
	if err := store.SetClaimMode(t.Context(), storage.ByRows); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Heartbeat(t.Context(), storage.Identity{Name: "other", Claim: storage.ByRows}, time.Hour); err != nil {
		t.Fatal(err)
	}
	sink := &closing{}
	r, err := relay.New(db.Store(), relay.Options{Sinks: to(sink)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if sink.closed != 1 {
			t.Errorf("the sink was closed %d times, want once", sink.closed)
		}
	}()
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "claim by lanes") {
		t.Errorf("Run on a table that is claimed by rows: %v", err)
	}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "called before") {
		t.Errorf("a second Run: %v", err)
	}
}

// closing is a sink that counts the calls of Close.
type closing struct {
	recorder
	closed int
}

func (c *closing) Close(context.Context) error { c.closed++; return nil }

func TestRelayStopsWhenTheClaimModeChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		store := db.Store()
		var gone atomic.Bool
		store.Hooks.Fail = func(context.Context, memstore.Op) error {
			if gone.Load() {
				return errors.New("unreachable")
			}
			return nil
		}
		r, err := relay.New(store, relay.Options{Sinks: to(&recorder{}), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run(t.Context()) }()
		time.Sleep(time.Minute)
		gone.Store(true) // from now on, the relay is considered dead, and the table's claim mode is changed
		time.Sleep(time.Minute)
		if err := db.Store().SetClaimMode(t.Context(), storage.ByRows); err != nil {
			t.Fatal(err)
		}
		gone.Store(false)
		if err := <-done; !errors.Is(err, storage.ErrOtherClaim) {
			t.Errorf("Run returned %v", err)
		}
	})
}
