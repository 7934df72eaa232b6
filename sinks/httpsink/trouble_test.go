package httpsink_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// hang is a pseudo-status: the endpoint doesn't answer.
const hang = 0

// troubles are the statuses that an endpoint may answer to all requests.
var troubles = []int{hang, 300, 301, 302, 307, 308, 400, 401, 402, 403, 404, 405, 407, 408, 409, 410, 411, 413, 414, 415, 418, 421, 422, 425, 429, 451, 500, 501, 502, 503, 504, 511, 599}

// switchable is an endpoint that answers all requests with one status while it is in trouble, and
// always refuses messages of the topic "bad".
type switchable struct {
	status  atomic.Int64 // -1 if the endpoint works
	release chan struct{}

	mu       sync.Mutex
	arrived  map[string]int
	attempts map[string]string // by message id: the attempt number of the last request
}

func newSwitchable(status int) *switchable {
	s := &switchable{release: make(chan struct{}), arrived: map[string]int{}, attempts: map[string]string{}}
	s.status.Store(int64(status))
	return s
}

func (s *switchable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	switch status := s.status.Load(); {
	case status == hang:
		select {
		case <-r.Context().Done():
		case <-s.release:
		}
	case status > 0:
		w.WriteHeader(int(status))
	case r.Header.Get("Rowrelay-Topic") == "bad":
		w.WriteHeader(http.StatusUnprocessableEntity)
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		id := r.Header.Get("Idempotency-Key")
		s.arrived[id]++
		s.attempts[id] = r.Header.Get("Rowrelay-Attempt")
	}
}

// pipes is a listener without a network.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, open := <-p; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

var lasting = flag.Int("lasting", 8, "how many of the statuses, chosen at random, TestEveryStatusForTenMinutes and TestOneKeyThroughAnOutage try")

// If an endpoint answers all requests with one status for ten minutes, nothing is parked or charged
// an attempt. Within thirty seconds after the trouble everything is delivered. A message that the
// endpoint always refuses is parked after others were delivered.
func TestEveryStatusForTenMinutes(t *testing.T) {
	t.Parallel()
	for _, i := range rand.Perm(len(troubles))[:min(*lasting, len(troubles))] {
		status := troubles[i]
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, endpoint, listener := memstore.New(), newSwitchable(status), make(pipes)
				server := &http.Server{Handler: endpoint}
				go server.Serve(listener)
				sink := newSink(t, httpsink.Options{URL: "http://endpoint/", Timeout: 5 * time.Second}).Over(listener.dial)
				stop := relaying(t, db.Store(), relay.SinkOptions{Sink: sink})
				for i := range 200 {
					db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i)})
				}
				time.Sleep(10 * time.Minute)
				if counts := stateCounts(t, db.Store()); counts[storage.StateError] > 0 {
					t.Errorf("during the trouble %v", counts)
				}
				endpoint.status.Store(-1)
				close(endpoint.release)
				db.Write(outbox.Message{Topic: "bad", Key: "bad"})
				time.Sleep(30 * time.Second)
				if counts := stateCounts(t, db.Store()); counts[storage.StateDone] != 200 {
					t.Errorf("30 s after the trouble: %v, want 200 done", counts)
				}
				for range 6 { // other deliveries show that the message is at fault
					db.Write(outbox.Message{Topic: "orders"})
					time.Sleep(6 * time.Second)
				}
				stop()
				close(listener)
				server.Close()
				if counts := stateCounts(t, db.Store()); counts[storage.StateDone] != 206 || counts[storage.StateError] != 1 {
					t.Errorf("after six more messages: %v, want 206 done and one parked", counts)
				}
				for id, attempt := range endpoint.attempts {
					if attempt != "1" {
						t.Errorf("message %s arrived with attempt %s", id, attempt)
					}
				}
			})
		})
	}
}

// TestEveryStatusOverTheNetwork is the same test with a server, a database and a few seconds.
func TestEveryStatusOverTheNetwork(t *testing.T) {
	t.Parallel()
	for _, status := range []int{hang, 302, 401, 404, 422, 502, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			d, endpoint := newTable(t), newSwitchable(status)
			server := httptest.NewServer(endpoint)
			t.Cleanup(server.Close)
			for i := range 200 {
				d.write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i)})
			}
			watch := &troubled{down: make(chan string, 1)}
			d.relay(relay.Options{Observer: watch, Sinks: map[string]relay.SinkOptions{"main": {
				Sink: newSink(t, httpsink.Options{URL: server.URL, Timeout: 3 * time.Second}), JudgeAloneAfter: time.Minute,
				BreakerBackoff: relay.Backoff{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond},
			}}})
			<-watch.down
			if counts := d.counts(); counts[storage.StateError] > 0 || counts[storage.StateDone] > 0 {
				t.Errorf("during the trouble %v", counts)
			}
			endpoint.status.Store(-1)
			close(endpoint.release)
			d.write(outbox.Message{Topic: "bad", Key: "bad"})
			for i := range 5 {
				d.write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i)})
			}
			d.eventually("all other messages are delivered and the bad one is parked", func() bool {
				counts := d.counts()
				if counts[storage.StateError] == 0 {
					d.write(outbox.Message{Topic: "orders"}) // others continue
				}
				return counts[storage.StateDone] >= 205 && counts[storage.StatePending]+counts[storage.StateRetry] == 0 && counts[storage.StateError] == 1
			})
		})
	}
}

// troubled records when a sink is first reported as down. Later reports must not block: on a very
// slow machine requests time out, so a sink goes down often.
type troubled struct {
	relay.NoObserver
	down chan string
}

func (w *troubled) SinkDown(_ string, _ sinks.Reason, detail string) {
	select {
	case w.down <- detail:
	default:
	}
}

// relaying runs a relay until stop is called. It polls seldom, because ten minutes of frequent polls
// would take longer than everything else.
func relaying(t *testing.T, store storage.Store, options relay.SinkOptions) (stop func()) {
	t.Helper()
	r, err := relay.New(store, relay.Options{Logger: slog.New(slog.DiscardHandler), Poll: 5 * time.Second, Sinks: map[string]relay.SinkOptions{"main": options}})
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		check(t, <-done)
	}
}

func stateCounts(t *testing.T, store storage.Operator) map[storage.State]int64 {
	t.Helper()
	status, err := store.Status(t.Context())
	check(t, err)
	return status.Counts
}
