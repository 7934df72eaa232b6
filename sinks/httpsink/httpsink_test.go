package httpsink_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/settings"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token    = "t0ken/with+signs"
	static   = `he"ader`
	password = "p4ss:word"
	query    = "qu3ry-secret"
)

// conformance runs the suite with an outage that answers 503.
func conformance(t *testing.T, start func(t testing.TB, e *endpoint) httpsink.Options) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		e := newEndpoint()
		options := start(t, e)
		options.URL += "/hooks/path-secret?key=" + query
		options.Headers = map[string]settings.Secret{"x-static": static}
		return sinktest.Harness{
			Sink: newUnclosed(t, options), Received: e.received, Stall: e.stall, Answer: e.answer,
			Break:  func() { e.set(func() { e.down = true }) },
			Repair: func() { e.set(func() { e.down = false }) },
			Secrets: []string{
				token, static, password, query, "path-secret", `he\"ader`, "t0ken%2Fwith%2Bsigns",
				base64.StdEncoding.EncodeToString([]byte("user:" + password)),
			},
		}
	})
}

// newUnclosed returns a sink that the suite closes.
func newUnclosed(t testing.TB, options httpsink.Options) *httpsink.Sink {
	t.Helper()
	sink, err := httpsink.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func TestConformance(t *testing.T) {
	conformance(t, func(t testing.TB, e *endpoint) httpsink.Options {
		return httpsink.Options{URL: "http://" + newServer(t, e).address, BearerToken: token}
	})
}

func TestConformanceOneAtATime(t *testing.T) {
	conformance(t, func(t testing.TB, e *endpoint) httpsink.Options {
		return httpsink.Options{URL: "http://" + newServer(t, e).address, Concurrency: 1, Method: http.MethodPut, Username: "user", Password: password}
	})
}

func TestConformanceHTTP2(t *testing.T) {
	conformance(t, func(t testing.TB, e *endpoint) httpsink.Options {
		url, config := overTLS(t, e)
		return httpsink.Options{URL: url, TLS: config, BearerToken: token}
	})
}

// overTLS serves HTTP/2 and returns the TLS configuration for its clients.
func overTLS(t testing.TB, handler http.Handler) (string, *tls.Config) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that stops may abort a handshake
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, trust(server)
}

func trust(server *httptest.Server) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &tls.Config{RootCAs: roots}
}

// The outage is a server that doesn't run.
func TestConformanceServerGone(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		e := newEndpoint()
		s := newServer(t, e)
		return sinktest.Harness{
			Sink:  newUnclosed(t, httpsink.Options{URL: "http://" + s.address, BearerToken: token}),
			Break: s.stop, Repair: s.start, Received: e.received, Stall: e.stall, Answer: e.answer,
			Secrets: []string{token},
		}
	})
}
