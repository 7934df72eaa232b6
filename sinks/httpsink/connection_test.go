package httpsink_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// listening accepts connections and calls serve for each.
func listening(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer connection.Close()
				serve(connection)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// readRequest reads a whole request from a connection.
func readRequest(reader *bufio.Reader) error {
	r, err := http.ReadRequest(reader)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

const accepted = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"

// nobody is an address without a listener: no client and no test is given its port.
const nobody = "127.0.0.1:9"

func TestUnreachableEndpointIsUnavailable(t *testing.T) {
	t.Parallel()
	o := sendOne(t, newSink(t, httpsink.Options{URL: "http://" + nobody}), message("k"))
	if o.Result != sinks.Unavailable || o.Reason != sinks.ReasonConnection || !strings.Contains(o.Detail, "refused") {
		t.Errorf("outcome %+v", o)
	}
}

// The connection ends after the request was read. The client must not repeat the request on its own, not even on a
// reused connection, where Go's client usually does.
func TestLostAnswerIsUnknownAndNotRepeated(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string][]byte{"NULL": nil, "small": []byte("{}"), "large": make([]byte, 1<<20)} {
		for _, before := range []int{0, 1} {
			var all, requests atomic.Int64 // of all connections: on a slow machine, Go's client doesn't reuse the first one
			address := listening(t, func(c net.Conn) {
				for reader := bufio.NewReader(c); readRequest(reader) == nil; {
					if all.Add(1) > int64(before) {
						requests.Add(1)
						return
					}
					_, _ = io.WriteString(c, accepted)
				}
			})
			sink := newSink(t, httpsink.Options{URL: "http://" + address, Concurrency: 1})
			m := message("k")
			m.Payload = payload
			m.Headers = map[string]string{"x-idempotency-key": "7"}
			for range before {
				if o := sendOne(t, sink, m); o.Result != sinks.Delivered {
					t.Errorf("%s: the first answer: %+v", name, o)
				}
			}
			o := sendOne(t, sink, m)
			if o.Result != sinks.Retry || o.Reason != sinks.ReasonUnknown || requests.Load() != 1 {
				t.Errorf("%s on request %d: %d requests, %+v", name, before+1, requests.Load(), o)
			}
		}
	}
}

// If no byte of a request could be written, the request is repeated on a new connection within the same Send.
func TestClosedIdleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	var connections atomic.Int64
	address := listening(t, func(c net.Conn) {
		connections.Add(1)
		if readRequest(bufio.NewReader(c)) == nil {
			_, _ = io.WriteString(c, accepted)
		}
	})
	sink := newSink(t, httpsink.Options{URL: "http://" + address})
	for n := range 20 {
		// The endpoint closes the connection after each answer without announcing it. If the client notices that
		// only after it has written, the answer is lost.
		o := sendOne(t, sink, message("k"))
		lost := o.Result == sinks.Retry && o.Reason == sinks.ReasonUnknown
		if o.Result != sinks.Delivered && !lost {
			t.Errorf("request %d: %+v", n, o)
		}
	}
	if connections.Load() < 2 {
		t.Error("the connection was never closed")
	}
}

// An endpoint that closes the connection while it reads a large request must not
// count as unavailable, because an outage is retried without limit.
func TestHangUpOnALargeRequestIsARetry(t *testing.T) {
	t.Parallel()
	address := listening(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 1000))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	large, wide := message("k"), message("k")
	large.Payload = make([]byte, 8<<20)
	wide.Headers = map[string]string{}
	for i := range 1000 {
		wide.Headers[fmt.Sprint("x-", i)] = strings.Repeat("v", 5000)
	}
	for name, m := range map[string]sinks.Message{"payload": large, "header": wide} {
		o := sendOne(t, newSink(t, httpsink.Options{URL: "http://" + address}), m)
		if o.Result != sinks.Retry || o.Reason != sinks.ReasonUnknown {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// The client knows the endpoint's limit, so the message can never be sent.
func TestTooLargeHTTP2HeaderIsRejected(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.MaxHeaderBytes = 8 << 10
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	sink := newSink(t, httpsink.Options{URL: server.URL, TLS: trust(server)})
	if o := sendOne(t, sink, message("k")); o.Result != sinks.Delivered {
		t.Fatalf("an ordinary message: %+v", o)
	}
	m := message("k")
	m.Headers = map[string]string{"x-large": strings.Repeat("v", 100<<10)}
	if o := sendOne(t, sink, m); o.Result != sinks.Reject || o.Reason != sinks.ReasonTooLarge {
		t.Errorf("outcome %+v", o)
	}
}

func TestHTTP2IsUsedIfOffered(t *testing.T) {
	t.Parallel()
	version := 0
	url, config := overTLS(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { version = r.ProtoMajor }))
	sendOne(t, newSink(t, httpsink.Options{URL: url, TLS: config}), message("k"))
	if version != 2 {
		t.Errorf("the request was HTTP/%d", version)
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	silent := func(c net.Conn, _ <-chan struct{}) { _, _ = io.Copy(io.Discard, c) }
	deaf := func(c net.Conn, ended <-chan struct{}) { // reads only the beginning of a request
		_, _ = io.ReadFull(c, make([]byte, 10))
		<-ended
	}
	tests := map[string]struct {
		url    string
		serve  func(c net.Conn, ended <-chan struct{})
		result sinks.Result
		reason sinks.Reason
	}{
		"no answer":    {"http://endpoint.example", silent, sinks.Retry, sinks.ReasonTimeout},
		"no handshake": {"https://endpoint.example", silent, sinks.Unavailable, sinks.ReasonConnection},
		"not read":     {"http://endpoint.example", deaf, sinks.Retry, sinks.ReasonTimeout},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended, began := make(chan struct{}), time.Now()
				sink := newUnclosed(t, httpsink.Options{URL: test.url, Timeout: 3 * time.Second}).Over(func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go func() {
						defer server.Close()
						test.serve(server, ended)
					}()
					return client, nil
				})
				if o := sendOne(t, sink, message("k")); o.Result != test.result || o.Reason != test.reason {
					t.Errorf("%+v, want %v %s", o, test.result, test.reason)
				}
				if took := time.Since(began); took != 3*time.Second {
					t.Errorf("it took %v, want the timeout of a request", took)
				}
				close(ended)
				_ = sink.Close(t.Context())
			})
		})
	}
}

func TestContextEndsBeforeTheRequestIsSent(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 1)
	address := listening(t, func(c net.Conn) {
		reached <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	sink := newSink(t, httpsink.Options{URL: "https://" + address}) // blocks until the handshake ends
	o := sink.Send(ctx, []sinks.Message{message("k")})[0]
	if o.Result != sinks.Unsent || o.Reason != sinks.ReasonCancelled {
		t.Errorf("outcome %+v", o)
	}
}

func TestInvalidHTTPAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"nonsense":   "s3cret nonsense\r\n\r\n",
		"half":       "HTTP/1.1 200",
		"bad length": "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
	} {
		address := listening(t, func(c net.Conn) {
			if readRequest(bufio.NewReader(c)) == nil {
				_, _ = io.WriteString(c, answer)
			}
		})
		o := sendOne(t, newSink(t, httpsink.Options{URL: "http://" + address, BearerToken: "s3cret"}), message("k"))
		if o.Result != sinks.Retry || o.Reason != sinks.ReasonUnknown || strings.Contains(o.Detail, "s3cret") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// The outcome depends on the status only.
func TestOutcomeIgnoresTheBodyOfAnAnswer(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{
		"cut off":        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"endless chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("400\r\n"+strings.Repeat("x", 0x400)+"\r\n", 1000),
		"never ends":     "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"other protocol": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc",
	}
	for name, answer := range bodies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := listening(t, func(c net.Conn) {
				if readRequest(bufio.NewReader(c)) != nil {
					return
				}
				_, _ = io.WriteString(c, answer)
				if name != "cut off" {
					_, _ = io.Copy(io.Discard, c)
				}
			})
			start := time.Now()
			o := sendOne(t, newSink(t, httpsink.Options{URL: "http://" + address}), message("k"))
			want := sinks.Delivered
			if name == "other protocol" {
				want = sinks.Retry
			}
			if o.Result != want || time.Since(start) > time.Minute {
				t.Errorf("%+v after %v", o, time.Since(start))
			}
		})
	}
}

// counting is a server that counts its connections.
func counting(t *testing.T, handler http.HandlerFunc) (string, *atomic.Int64) {
	t.Helper()
	connections := new(atomic.Int64)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

// Connections are reused after answers with and without bodies, whatever the status. Reading a body takes no time
// here.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connections, requests := make(pipes), 0
		dialled := 0
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.WriteHeader([]int{200, 204, 400, 500, 503}[requests%5])
			if requests%5 != 1 {
				_, _ = w.Write(make([]byte, requests*100))
			}
		})}
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(connections) })
		sink := newUnclosed(t, httpsink.Options{URL: "http://endpoint.example/"}).Over(func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled++
			return connections.dial(ctx, network, address)
		})
		for range 100 {
			sendOne(t, sink, message("k"))
		}
		if dialled != 1 || requests != 100 {
			t.Errorf("%d connections for %d requests", dialled, requests)
		}
		_ = sink.Close(t.Context())
		close(connections)
		serving.Wait()
		_ = server.Close()
	})
}

// The limit applies to all Sends together. Each key has at most one request at a time.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	const limit = 4
	var mu sync.Mutex
	now, most, keys, full := 0, 0, map[string]int{}, make(chan struct{})
	url, connections := counting(t, func(_ http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Rowrelay-Key")
		mu.Lock()
		now++
		if keys[key]++; key != "" && keys[key] > 1 {
			t.Errorf("two concurrent requests of key %q", key)
		}
		if most = max(most, now); now == limit && most == limit {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full // hold all requests until the limit is reached
		mu.Lock()
		defer mu.Unlock()
		now--
		keys[key]--
	})
	sink := newSink(t, httpsink.Options{Concurrency: limit, URL: url})
	var sends sync.WaitGroup
	for send := range 3 {
		sends.Go(func() {
			var batch []sinks.Message
			for n := range 20 {
				batch = append(batch, message(fmt.Sprint(send, " ", n%7)), message(""))
			}
			for _, o := range sink.Send(t.Context(), batch) {
				if o.Result != sinks.Delivered {
					t.Errorf("outcome %+v", o)
				}
			}
		})
	}
	sends.Wait()
	if most != limit {
		t.Errorf("%d concurrent requests, want %d", most, limit)
	}
	if got := connections.Load(); got > 2*limit { // the client may dial more connections than it uses
		t.Errorf("%d connections for %d concurrent requests", got, limit)
	}
	if got := sink.Limits().Messages; got != 8*limit {
		t.Errorf("batches of %d", got)
	}
}

// After an answer that means an outage, no further request is started for the
// batch.
func TestOutageStopsTheBatch(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	sink := newSink(t, httpsink.Options{Concurrency: 2, URL: answering(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
	})})
	outcomes := sink.Send(t.Context(), []sinks.Message{message("a"), message("a"), message("b"), message("c"), message("")})
	unavailable := 0
	for i, o := range outcomes {
		switch o.Result {
		case sinks.Unavailable:
			unavailable++
			if o.RetryAfter != time.Minute {
				t.Errorf("outcome %d: %+v", i, o)
			}
		case sinks.Unsent:
		default:
			t.Errorf("outcome %d: %+v", i, o)
		}
	}
	if got := int(requests.Load()); got != unavailable || got > 2 {
		t.Errorf("%d requests for %d outcomes, want at most 2", got, unavailable)
	}
}

func TestUntrustedCertificateIsUnavailable(t *testing.T) {
	t.Parallel()
	url, _ := overTLS(t, newEndpoint())
	o := sendOne(t, newSink(t, httpsink.Options{URL: url}), message("k"))
	if o.Result != sinks.Unavailable || o.Reason != sinks.ReasonAuth || !strings.Contains(o.Detail, "certificate") {
		t.Errorf("outcome %+v", o)
	}
}

func TestCloseClosesConnections(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	address := listening(t, func(c net.Conn) {
		reader := bufio.NewReader(c)
		if readRequest(reader) == nil {
			_, _ = io.WriteString(c, accepted)
		}
		closed <- readRequest(reader)
	})
	sink := newUnclosed(t, httpsink.Options{URL: "http://" + address})
	sendOne(t, sink, message("k"))
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-closed; !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	}
}
