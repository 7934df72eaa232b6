package httpsink_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/settings"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// loopback are the networks of the test servers.
var loopback = []string{"127.0.0.0/8"}

// Each message chooses its address by its topic.
func TestConformanceChosenEndpoints(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		e := newEndpoint()
		s, gone := newServer(t, e), newServer(t, e)
		gone.stop()
		sink := newUnclosed(t, httpsink.Options{
			URL: "http://{topic}/hooks/path-secret?key=" + query, AllowedNetworks: loopback, Headers: map[string]settings.Secret{"x-static": static},
		})
		return sinktest.Harness{
			Sink: sink, Topic: s.address, Received: e.received, Stall: e.stall, Answer: e.answer, Break: s.stop, Repair: s.start,
			Astray:  func(m *sinks.Message) { m.Topic = gone.address },
			Secrets: []string{static, query, "path-secret"},
		}
	})
}

// tenant is an endpoint that messages choose. It records what it receives.
type tenant struct {
	*server
	mu       sync.Mutex
	got      []string // key and number
	attempts []string
}

func newTenant(t *testing.T, status int, pause func()) *tenant {
	t.Helper()
	tenant := &tenant{}
	tenant.server = newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pause()
		tenant.mu.Lock()
		defer tenant.mu.Unlock()
		tenant.got = append(tenant.got, r.Header.Get("Rowrelay-Key")+" "+r.Header.Get("Number"))
		tenant.attempts = append(tenant.attempts, r.Header.Get("Rowrelay-Attempt"))
		w.WriteHeader(status)
	}))
	return tenant
}

func (e *tenant) received() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.got)
}

// attempted returns the attempt number of each request.
func (e *tenant) attempted() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.attempts)
}

// A relay with a table sends to four endpoints: one is down, one slow, one failing.
// Messages to the fourth arrive in the meantime. Messages to the endpoint that is
// down wait uncharged, with the reason in their rows, and arrive in order when it
// is up again.
func TestEndpointsAreIsolated(t *testing.T) {
	t.Parallel()
	good, down := newTenant(t, http.StatusOK, func() {}), newTenant(t, http.StatusOK, func() {})
	failing := newTenant(t, http.StatusInternalServerError, func() {})
	slowly, release := make(chan struct{}), make(chan struct{})
	slow := newTenant(t, http.StatusOK, func() { // waits briefly at first, so that the endpoint is known to be slow; later until the other messages were delivered
		select {
		case <-slowly:
			<-release
		case <-time.After(1200 * time.Millisecond):
		}
	})
	down.stop()
	d := newTable(t)
	d.write(to(slow.address, "s", 0), to(slow.address, "", 0))
	sink := newUnclosed(t, httpsink.Options{URL: "http://{header:to}/", AllowedNetworks: loopback, EndpointPause: 2 * time.Second, Timeout: 10 * time.Minute})
	d.relay(relay.Options{Sinks: map[string]relay.SinkOptions{"http": {Sink: sink, Timeout: 10 * time.Minute, MaxAttempts: -1, Backoff: relay.Backoff{Min: time.Minute, Max: time.Hour}}}})
	d.eventually("the slow endpoint is known", func() bool { return len(slow.received()) == 2 })
	close(slowly)
	var messages []outbox.Message
	for n := range 100 {
		messages = append(messages, to(good.address, fmt.Sprint("g", n%5), n))
		if n%4 == 0 {
			messages = append(messages, to(down.address, fmt.Sprint("d", n%3), n), to(down.address, "", n),
				to(failing.address, "f", n), to(failing.address, "", n))
		}
		if n%10 == 0 {
			messages = append(messages, to(slow.address, fmt.Sprint("s", n), n))
		}
	}
	d.write(messages...)
	d.eventually("all messages to the healthy endpoint have arrived while the slow one hangs", func() bool { return len(good.received()) >= 100 })
	for _, row := range d.list(storage.StateRetry) {
		if row.Message.Headers["to"] == slow.address && row.Attempts > 0 {
			t.Errorf("a request to the slow endpoint timed out: its message waits after %d attempts with %q", row.Attempts, row.LastError)
		}
	}
	close(release)
	d.eventually("the rows of the unavailable endpoint have the reason", func() bool { return waits(d, down.address) > 20 })
	down.start()
	d.eventually("all messages to working endpoints have arrived", func() bool { return len(down.received()) >= 50 && len(slow.received()) >= 12 })
	inTurn(t, good)
	inTurn(t, down)
	for _, attempt := range append(down.attempted(), slow.attempted()...) {
		if attempt != "1" {
			t.Errorf("a message to an endpoint that was down or slow arrived with attempt %s", attempt)
		}
	}
	if parked := d.counts()[storage.StateError]; parked > 0 {
		t.Errorf("%d messages were parked", parked)
	}
}

func to(address, key string, n int) outbox.Message {
	return outbox.Message{Topic: "t", Key: key, Headers: map[string]string{"to": address, "number": fmt.Sprint(n)}}
}

// waits counts the rows that wait for an endpoint with a reason, and checks that
// none was charged.
func waits(d *table, address string) (n int) {
	for _, row := range d.list(storage.StateRetry) {
		if row.Message.Headers["to"] != address {
			continue
		}
		if row.Attempts != 0 || !strings.HasPrefix(row.LastError, "connection: ") {
			d.t.Errorf("a message to the endpoint that is down waits after %d attempts with %q", row.Attempts, row.LastError)
		}
		n++
	}
	return n
}

// inTurn checks that the messages of each key arrived once and in order.
func inTurn(t *testing.T, e *tenant) {
	t.Helper()
	last := map[string]int{}
	for _, got := range e.received() {
		key, number, _ := strings.Cut(got, " ")
		var n int
		if _, err := fmt.Sscan(number, &n); err != nil {
			t.Fatal(err)
		}
		if before, known := last[key]; known && n <= before && key != "" {
			t.Errorf("of key %s, %d arrived after %d", key, n, before)
		}
		last[key] = n
	}
}

func TestEndpointMaxAge(t *testing.T) {
	t.Parallel()
	gone := newServer(t, newEndpoint())
	gone.stop()
	sink := newSink(t, httpsink.Options{URL: "http://{topic}/", AllowedNetworks: loopback, EndpointMaxAge: time.Hour})
	m := message("k")
	m.Topic = gone.address
	for age, want := range map[time.Duration]sinks.Result{0: sinks.Unsent, 59 * time.Minute: sinks.Unsent, 61 * time.Minute: sinks.Reject} {
		m.CreatedAt = time.Now().Add(-age)
		o := sendOne(t, sink, m)
		if o.Result != want || want == sinks.Reject && (o.Reason != sinks.ReasonExhausted || !strings.HasPrefix(o.Detail, "endpoint unavailable and message older than 1h0m0s: dial tcp")) {
			t.Errorf("after %v: %+v, want %v", age, o, want)
		}
	}
	m.CreatedAt = time.Time{} // unknown
	if o := sendOne(t, sink, m); o.Result != sinks.Unsent {
		t.Errorf("%+v", o)
	}
}
