package httpsink_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func registry(t *testing.T) *sinks.Registry {
	t.Helper()
	r, err := sinks.NewRegistry(httpsink.Kind())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKind(t *testing.T) {
	t.Parallel()
	const url = "https://example.com/hook"
	sinktest.Kind(t, httpsink.Kind(),
		map[string]any{"url": url, "headers": map[string]any{"X-Static": "st4tic"}, "bearer_token": "t0ken"},
		map[string]any{"url": url, "username": "user", "password": "p4ssword", "signing_secret": oldSecret},
		map[string]any{"url": url, "oauth2_token_url": "https://id.example/token", "oauth2_client_id": "id", "oauth2_client_secret": "cl1ent"},
	)
}

// The user name and password of the URL become credentials and are removed from the request's URL.
func TestFromURL(t *testing.T) {
	t.Parallel()
	for userinfo, want := range map[string]string{"": "", "u:p%40w@": "Basic dTpwQHc=", "u@": "Basic dTo=", "u:@": "Basic dTo=", ":p@": "Basic OnA="} {
		var got *http.Request
		url := answering(t, func(_ http.ResponseWriter, r *http.Request) { got = r })
		sink, err := registry(t).FromURL(strings.Replace(url, "://", "://"+userinfo, 1) + "/hook?a=b%20c")
		if err != nil {
			t.Error(err)
			continue
		}
		if o := sendOne(t, sink, message("k")); o.Result != sinks.Delivered {
			t.Errorf("%q: %+v", userinfo, o)
		}
		if got.URL.String() != "/hook?a=b%20c" || got.Header.Get("Authorization") != want {
			t.Errorf("%q: %s, Authorization %q, want %q", userinfo, got.URL, got.Header.Get("Authorization"), want)
		}
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestInvalidSinkURLs(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"http:":                    "setting url: has no host",
		"http:///s3cret":           "setting url: has no host",
		"https://u:s3cret@":        "setting url: has no host",
		"https://h/#s3cret":        "setting url: must not have a fragment",
		"https://u:s3cret@h:port/": "malformed",
		"https://u:s3cret%zz@h/":   "malformed",
		"https://u%3Ax:s3cret@h/":  "the user name must not contain a colon",
		"https://s3cret with@h/":   "malformed",
	} {
		if _, err := registry(t).FromURL(rawURL); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("FromURL(%q): %v, want %s", rawURL, err, want)
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		value any
		want  string
	}{
		{"url", "ftp://s3cret", "setting url: must begin with http:// or https://"},
		{"method", "post", "setting method: must be one of POST, PUT"},
		{"headers", map[string]any{"Host": "s3cret"}, `setting headers: can't be sent: "Host" belongs to`},
		{"content_type", "a\nb", "setting content_type: has a line break"},
		{"bearer_token", "s3cret\n", "setting bearer_token: has a line break"},
		{"request_timeout", "999us", "setting request_timeout: must be at least 1ms"},
		{"request_timeout", "10m1ns", "setting request_timeout: must be at most 10m"},
		{"concurrency", 0, "setting concurrency: must be at least 1"},
		{"concurrency", 1001, "setting concurrency: must be at most 1000"},
		{"ca_file", filepath.Join("no", "such.pem"), "read the certificates to trust: open no"},
		{"ca_file", "README.md", "read the certificates to trust: README.md has no certificate in PEM form"},
	}
	for _, test := range tests {
		settings := map[string]any{"url": "https://example.com"}
		settings[test.name] = test.value
		_, err := registry(t).Make("http", settings)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s = %v: %v, want %s", test.name, test.value, err, test.want)
		}
	}
}

func TestSettingsAtTheirLimits(t *testing.T) {
	t.Parallel()
	for _, settings := range []map[string]any{
		{"request_timeout": "1ms", "concurrency": 1},
		{"request_timeout": "10m", "concurrency": 1000},
	} {
		settings["url"] = "http://example.com"
		if _, err := registry(t).Make("http", settings); err != nil {
			t.Errorf("%v: %v", settings, err)
		}
	}
}

func TestCAFile(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(newEndpoint())
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sink, err := registry(t).Make("http", map[string]any{"url": server.URL, "ca_file": path})
	if err != nil {
		t.Fatal(err)
	}
	if o := sendOne(t, sink, message("k")); o.Result != sinks.Delivered {
		t.Errorf("outcome %+v", o)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The query is sent to the endpoint, so without the error a setting in it would have no effect.
func TestSettingsInTheQueryAreRefused(t *testing.T) {
	t.Parallel()
	r := registry(t)
	for _, field := range httpsink.Kind().Fields {
		for _, query := range []string{field.Name + "=5", "a=b&" + field.Name, "a=%zz&" + field.Name + "=hunter2"} {
			_, err := r.FromURL("https://example.com/hook?" + query)
			if err == nil || !strings.Contains(err.Error(), field.Name+" is a setting") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", query, err)
			}
		}
		if _, err := r.Make("http", map[string]any{"url": "https://example.com/hook?" + field.Name + "=5"}); err != nil {
			t.Errorf("in a configuration file the query is the endpoint's: %v", err)
		}
	}
	if _, err := r.FromURL("https://example.com/hook?key=5&Concurrency=2"); err != nil {
		t.Error(err)
	}
}
