package plugins_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/relay"
)

var long = flag.Bool("long", false, "let the scenes last as long as the promise states")

// The plug-in is killed every second under load: no message is lost, each key stays in order, the other
// sink continues, and nothing is left behind.
func TestKilledPluginLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("lasts 10 s")
	}
	lasting := 10 * time.Second
	if *long {
		lasting = time.Minute
	}
	d, other := newDestination(t), newDestination(t)
	plugin, steady := toDestination(t, d, "prefix"), toDestination(t, other, "prefix")
	check(t, plugin.Open(t.Context())) // before the count, because some of the files that Open opens stay open
	files := openFiles(t)
	db := memstore.New()
	r, stop := relaying(t, db, plugin, steady)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var kills, written int
	var enough, scene sync.WaitGroup
	enough.Add(2)
	scene.Go(func() { kills = killing(ctx, plugin, int(lasting/time.Second)/3, enough.Done) })
	scene.Go(func() { written = writing(ctx, db, r.Wake, 1000, enough.Done) })
	<-time.After(lasting)
	enough.Wait() // on a slow machine, more time is needed
	cancel()
	scene.Wait()
	eventually(t, "everything arrives", func() bool { return d.distinct() == written && other.distinct() == written })
	stop()
	duplicates := inOrder(t, d, "killed") + inOrder(t, other, "steady")
	t.Logf("%d messages, %d kills, %d duplicates", written, kills, duplicates)
	if duplicates > kills*2*100 {
		t.Error("more messages were duplicated than were in flight")
	}
	eventually(t, "the files are closed", func() bool { return openFiles(t) <= files })
}

// relaying runs a relay that sends to both sinks until stop is called.
func relaying(t *testing.T, db *memstore.DB, plugin, steady *plugins.Sink) (r *relay.Relay, stop func()) {
	t.Helper()
	to := func(sink *plugins.Sink) relay.SinkOptions {
		return relay.SinkOptions{Sink: sink, Batch: 100, BreakerBackoff: relay.Backoff{Min: time.Millisecond, Max: 100 * time.Millisecond},
			Backoff: relay.Backoff{Min: time.Millisecond, Max: 100 * time.Millisecond}, MaxAttempts: -1}
	}
	r, err := relay.New(db.Store(), relay.Options{
		Name: "test", Logger: logger(t), Poll: 50 * time.Millisecond,
		Sinks:  map[string]relay.SinkOptions{"killed": to(plugin), "steady": to(steady)},
		Routes: []relay.Route{{Topic: "killed", Sink: "killed"}, {Topic: "steady", Sink: "steady"}},
	})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		cancel()
		check(t, <-done)
	}
}

// killing kills the plug-in every second until the context ends, and returns the number of kills. When it
// has killed the plug-in often enough, it calls done.
func killing(ctx context.Context, plugin *plugins.Sink, enough int, done func()) (kills int) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-tick.C:
		}
		if pid := plugin.PID(); pid != 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
			if kills++; kills == enough {
				done()
			}
		}
	}
}

// writing writes messages for both sinks until the context ends, and returns how many it wrote for each sink.
// When it has written enough, it calls done. The payload is the message's number within the key.
func writing(ctx context.Context, db *memstore.DB, wake func(), enough int, done func()) (written int) {
	const keys = 20
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return written
		case <-tick.C:
		}
		tx := db.Begin()
		for range 10 {
			for _, topic := range []string{"killed", "steady"} {
				tx.Insert(outbox.Message{
					ID: fmt.Sprint(topic, " ", written), Topic: topic, Key: fmt.Sprint("key-", written%keys), Payload: []byte(strconv.Itoa(written / keys)),
				})
			}
			if written++; written == enough {
				done()
			}
		}
		tx.Commit()
		wake()
	}
}

// inOrder checks that no message of a key arrives before its predecessor, and returns the number of
// duplicates.
func inOrder(t *testing.T, d *destination, name string) (duplicates int) {
	t.Helper()
	next := map[string]int{}
	for _, m := range d.received() {
		var n int
		check(t, json.Unmarshal(m.Payload, &n))
		switch {
		case n == next[m.Key]:
			next[m.Key]++
		case n < next[m.Key]:
			duplicates++
		default:
			t.Errorf("%s: key %s: message %d arrived, want message %d", name, m.Key, n, next[m.Key])
			next[m.Key] = n + 1
		}
	}
	return duplicates
}

func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(files)
}
