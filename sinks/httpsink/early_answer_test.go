package httpsink_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// resetting is a connection to an endpoint that answers before it has read the request, and closes the connection:
// the answer can be read, but only after a write has failed.
type resetting struct {
	net.Conn
	answer io.Reader
	failed chan struct{}
	once   sync.Once
	writes atomic.Int64
}

func (c *resetting) Write(text []byte) (int, error) {
	if c.writes.Add(1) == 1 {
		return len(text), nil
	}
	c.once.Do(func() { close(c.failed) })
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}

func (c *resetting) Read(text []byte) (int, error) {
	<-c.failed
	return c.answer.Read(text)
}

func (c *resetting) Close() error {
	c.once.Do(func() { close(c.failed) })
	return nil
}

func TestEarlyAnswerIsReadAfterAReset(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]sinks.Reason{413: sinks.ReasonTooLarge, 429: sinks.ReasonThrottled, 401: sinks.ReasonAuth, 503: sinks.ReasonThrottled} {
		server, client := net.Pipe()
		defer server.Close()
		answer := fmt.Sprintf("HTTP/1.1 %d Early\r\nRetry-After: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
		connection := &resetting{Conn: client, answer: strings.NewReader(answer), failed: make(chan struct{})}
		sink := newSink(t, httpsink.Options{URL: "http://localhost"}).Over(func(context.Context, string, string) (net.Conn, error) { return connection, nil })
		m := message("k")
		m.Payload = make([]byte, 1<<20)
		if o := sendOne(t, sink, m); o.Reason != want {
			t.Errorf("%d: %+v, want %s", status, o, want)
		}
	}
}

// Over a real connection, the client may see either the answer or the reset first.
func TestEarlyAnswerOverTheNetwork(t *testing.T) {
	t.Parallel()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	for _, scheme := range []string{"http", "https"} {
		for status, want := range map[int]sinks.Reason{413: sinks.ReasonTooLarge, 429: sinks.ReasonThrottled, 401: sinks.ReasonAuth} {
			address := listening(t, func(c net.Conn) {
				if scheme == "https" {
					config := certificate.TLS.Clone()
					config.NextProtos = nil
					c = tls.Server(c, config)
				}
				_, _ = http.ReadRequest(bufio.NewReader(c))
				_, _ = fmt.Fprintf(c, "HTTP/1.1 %d Early\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
			})
			m := message("k")
			m.Payload = make([]byte, 8<<20)
			for range 5 {
				if o := sendOne(t, newSink(t, httpsink.Options{URL: scheme + "://" + address, TLS: trust(certificate)}), m); o.Reason != want {
					t.Errorf("%s, %d: %+v, want %s", scheme, status, o, want)
				}
			}
		}
	}
}

// The draft of Idempotency-Key specifies 409 for a repetition in progress; some endpoints answer 423.
func TestRepetitionInProgressIsBusy(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusConflict, http.StatusLocked} {
		for _, array := range []bool{false, true} {
			hang, requests := make(chan struct{}), 0
			endpoint := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if requests++; requests == 3 { // its answer is lost
					<-hang
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(status)
			})
			sink := newSink(t, httpsink.Options{URL: endpoint, Array: array})
			m := message("k")
			if o := sendOne(t, sink, m); o.Result != sinks.Reject || o.Reason != sinks.ReasonRefused {
				t.Errorf("%d, array %v, the first attempt: %+v", status, array, o)
			}
			m.Attempt = 2
			if o := sendOne(t, sink, m); o.Result != sinks.Retry || o.Reason != sinks.ReasonBusy || o.RetryAfter != 7*time.Second {
				t.Errorf("%d, array %v, the second attempt: %+v", status, array, o)
			}
			close(hang)
			m.Attempt, m.ID = 1, "0196"
			if o := sendOne(t, sink, m); o.Reason != sinks.ReasonUnknown {
				t.Errorf("%d, array %v, a lost answer: %+v", status, array, o)
			}
			for range 2 { // an outage charges no attempt, so the attempt number is still 1
				if o := sendOne(t, sink, m); o.Result != sinks.Retry || o.Reason != sinks.ReasonBusy {
					t.Errorf("%d, array %v, after an answer was lost: %+v", status, array, o)
				}
			}
		}
	}
}

// A connection stops transmitting data in both directions, but neither side closes it. Other connections work.
func TestDeadHTTP2ConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	synctest.Test(t, func(t *testing.T) {
		pipes := make(chan net.Conn)
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 2 {
				t.Errorf("the request was HTTP/%d", r.ProtoMajor)
			}
			_, _ = io.Copy(io.Discard, r.Body)
		}), TLSConfig: &tls.Config{Certificates: certificate.TLS.Certificates}}
		go func() { _ = server.ServeTLS(pipeListener{pipes}, "", "") }()
		var dead atomic.Bool
		dials := 0
		sink := newUnclosed(t, httpsink.Options{URL: "https://example.com", TLS: trust(certificate)}).Over(func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			pipes <- server
			if dials++; dials == 1 {
				return &mortal{Conn: client, dead: &dead, ended: make(chan struct{})}, nil
			}
			return client, nil
		})
		if o := sendOne(t, sink, message("k")); o.Result != sinks.Delivered {
			t.Fatalf("before the connection is dead: %+v", o)
		}
		dead.Store(true)
		begun := time.Now()
		for o := (sinks.Outcome{}); o.Result != sinks.Delivered; {
			o = sendOne(t, sink, message("k"))
			if time.Sleep(time.Second); time.Since(begun) > 3*time.Minute {
				break // the connection was used until now
			}
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("the dead connection was used for %v", took)
		}
		_ = sink.Close(t.Context())
		_ = server.Close()
		time.Sleep(time.Hour) // lets the timers of both sides expire
	})
}

// mortal is a connection that, once dead, drops what is written and receives nothing.
type mortal struct {
	net.Conn
	dead  *atomic.Bool
	ended chan struct{}
	once  sync.Once
}

func (c *mortal) Write(text []byte) (int, error) {
	if c.dead.Load() {
		return len(text), nil
	}
	return c.Conn.Write(text)
}

func (c *mortal) Read(text []byte) (int, error) {
	n, err := c.Conn.Read(text)
	if c.dead.Load() {
		<-c.ended
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *mortal) Close() error {
	c.once.Do(func() { close(c.ended) })
	return c.Conn.Close()
}

// pipeListener accepts the connections that are sent to its channel.
type pipeListener struct{ conns chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	if conn, open := <-l.conns; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error   { close(l.conns); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// The proxy answers in place of the endpoint, or refuses to connect to it.
func TestProxyThatRequiresALogin(t *testing.T) {
	t.Parallel()
	proxy, err := url.Parse(answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	fatal(t, err)
	for _, endpoint := range []string{"http://endpoint.example", "https://endpoint.example"} {
		for _, array := range []bool{false, true} {
			sink := newSink(t, httpsink.Options{URL: endpoint, Array: array}).Via(proxy)
			for _, o := range sink.Send(t.Context(), []sinks.Message{message("a"), message("b")}) {
				if o.Result != sinks.Unavailable && o.Result != sinks.Unsent {
					t.Errorf("%s, array %v: %+v", endpoint, array, o)
				}
			}
		}
	}
}

// An endpoint can't exhaust the memory with headers, trailers or informational answers.
func TestAnswerHeadersAreLimited(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("X-Wide: "+strings.Repeat("v", 1000)+"\r\n", 1000)
	for name, answer := range map[string]string{
		"headers":  "HTTP/1.1 200 OK\r\n" + wide + "Content-Length: 0\r\n\r\n",
		"one line": "HTTP/1.1 200 OK\r\nX-Wide: " + strings.Repeat("v", 1<<20) + "\r\nContent-Length: 0\r\n\r\n",
		"hints":    strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("v", 1000)+"\r\n\r\n", 1000) + accepted,
	} {
		address := listening(t, func(c net.Conn) {
			if readRequest(bufio.NewReader(c)) == nil {
				_, _ = io.WriteString(c, answer)
			}
		})
		if o := sendOne(t, newSink(t, httpsink.Options{URL: "http://" + address}), message("k")); o.Result != sinks.Retry || o.Reason != sinks.ReasonUnknown {
			t.Errorf("%s: %+v", name, o)
		}
	}
	secured, config := overTLS(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Wide", strings.Repeat("v", 1<<20))
	}))
	if o := sendOne(t, newSink(t, httpsink.Options{URL: secured, TLS: config}), message("k")); o.Result != sinks.Retry || o.Reason != sinks.ReasonUnknown {
		t.Errorf("HTTP/2: %+v", o)
	}
	trailers := listening(t, func(c net.Conn) {
		if readRequest(bufio.NewReader(c)) == nil {
			_, _ = io.Copy(c, io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTrailer: X-Wide\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"), bytes.NewReader([]byte(wide)), strings.NewReader("\r\n")))
		}
	})
	if o := sendOne(t, newSink(t, httpsink.Options{URL: "http://" + trailers}), message("k")); o.Result != sinks.Delivered {
		t.Errorf("trailers arrive after the answer: %+v", o)
	}
}
