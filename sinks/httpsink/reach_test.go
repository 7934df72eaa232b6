package httpsink_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// Reach sends no request.
func TestReach(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 10)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) { requests <- request.URL.Path })
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(secure.Certificate())
	for name, test := range map[string]struct {
		options httpsink.Options
		tried   bool
		problem string
	}{
		"an endpoint":             {httpsink.Options{URL: plain.URL + "/messages"}, true, ""},
		"a path for each message": {httpsink.Options{URL: plain.URL + "/{topic}"}, true, ""},
		"TLS":                     {httpsink.Options{URL: secure.URL, TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}, true, ""},
		"unknown certificate":     {httpsink.Options{URL: secure.URL}, true, "certificate"},
		"no listener":             {httpsink.Options{URL: "http://" + nobody}, true, "refused"},
		"no TLS":                  {httpsink.Options{URL: strings.Replace(plain.URL, "http:", "https:", 1)}, true, "tls"},
		"a host for each message": {httpsink.Options{URL: "http://{key}.example.com/"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sink, err := httpsink.New(test.options)
			if err != nil {
				t.Fatal(err)
			}
			tried, err := sink.Reach(t.Context())
			if tried != test.tried || (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
				t.Errorf("tried %v, %v; want %v, %q", tried, err, test.tried, test.problem)
			}
		})
	}
	t.Cleanup(func() {
		if len(requests) > 0 {
			t.Errorf("a request was sent to %s", <-requests)
		}
	})
}
