package httpsink_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// endpoint receives messages. Tests control how it answers.
type endpoint struct {
	mu       sync.Mutex
	down     bool
	answers  map[string]sinks.Result
	arrived  []outbox.Message
	requests []*http.Request
	reached  chan struct{}
	release  chan struct{}
}

func newEndpoint() *endpoint { return &endpoint{answers: map[string]sinks.Result{}} }

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if release := e.stalled(); release != nil {
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
	}
	m := messageOf(r, body)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, r)
	switch answer, ok := e.answers[m.ID]; {
	case e.down:
		repeat(w, r, http.StatusServiceUnavailable)
	case ok && answer == sinks.Reject:
		repeat(w, r, http.StatusUnprocessableEntity)
	case ok && answer == sinks.Retry:
		repeat(w, r, http.StatusInternalServerError)
	default:
		e.arrived = append(e.arrived, m)
		w.WriteHeader(http.StatusAccepted)
	}
}

// repeat answers with the whole request, as some servers do.
func repeat(w http.ResponseWriter, r *http.Request, status int) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	for _, name := range []string{"Authorization", "X-Static"} {
		fmt.Fprintf(w, "%s: %s\n", name, r.Header.Get(name))
	}
	fmt.Fprintf(w, "%s %s\n", r.Method, r.URL)
}

// messageOf decodes a message as README.md describes.
func messageOf(r *http.Request, body []byte) outbox.Message {
	m := outbox.Message{
		ID:      decoded(r.Header.Get("Idempotency-Key")),
		Topic:   decoded(r.Header.Get("Rowrelay-Topic")),
		Key:     decoded(r.Header.Get("Rowrelay-Key")),
		Payload: body,
		Headers: map[string]string{},
	}
	if r.Header.Get("Rowrelay-Payload") == "null" {
		m.Payload = nil
	}
	for name, values := range r.Header {
		own := strings.HasPrefix(name, "Rowrelay-") || name == "Idempotency-Key"
		if client := []string{"User-Agent", "Content-Length", "Content-Type", "Authorization", "X-Static"}; !own && !slices.Contains(client, name) {
			m.Headers[strings.ToLower(name)] = strings.Join(values, ",")
		}
	}
	return m
}

func decoded(text string) string {
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "not encoded: " + text
	}
	return plain
}

func (e *endpoint) stalled() chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reached != nil {
		close(e.reached)
		e.reached = nil
	}
	return e.release
}

func (e *endpoint) stall() (<-chan struct{}, func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reached, release := make(chan struct{}), make(chan struct{})
	e.reached, e.release = reached, release
	return reached, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.release = nil
		close(release)
	}
}

func (e *endpoint) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *endpoint) received() (got []outbox.Message) {
	e.set(func() { got = slices.Clone(e.arrived) })
	return got
}

func (e *endpoint) answer(id string, result sinks.Result) {
	e.set(func() {
		if e.answers[id] = result; result == sinks.Delivered {
			delete(e.answers, id)
		}
	})
}

// server is an HTTP server that can be stopped and started again at the same
// address.
type server struct {
	t       testing.TB
	handler http.Handler
	address string
	http    *http.Server
	served  chan struct{} // closed when the server has stopped
}

func newServer(t testing.TB, handler http.Handler) *server {
	t.Helper()
	// Use a separate address, so that no other test gets the port while the server
	// is stopped.
	s := &server{t: t, handler: handler, address: fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	listener, err := net.Listen("tcp", s.address)
	for end := time.Now().Add(5 * time.Minute); err != nil && time.Now().Before(end); {
		listener, err = net.Listen("tcp", s.address) // another test's connection may briefly use the port
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.http = &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listener)
	}()
}

func (s *server) stop() {
	_ = s.http.Close()
	<-s.served
}

// answering is a server with the same handler for all requests.
func answering(t testing.TB, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func newSink(t testing.TB, options httpsink.Options) *httpsink.Sink {
	t.Helper()
	sink, err := httpsink.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return sink
}

// message returns a message with the key.
func message(key string) sinks.Message {
	return sinks.Message{Message: outbox.Message{ID: "0195", Topic: "t", Key: key, Payload: []byte(`{"a":1}`)}, Attempt: 1}
}

// sendOne sends a message and returns its outcome.
func sendOne(t testing.TB, sink sinks.Sink, m sinks.Message) sinks.Outcome {
	t.Helper()
	return sink.Send(t.Context(), []sinks.Message{m})[0]
}
