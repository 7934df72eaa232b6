package httpsink_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestTemplatesOfURLAndHeaders(t *testing.T) {
	t.Parallel()
	got := requestOf(t, httpsink.Options{
		URL:            "/{topic}/{key}?tenant={header:x-tenant}",
		MessageHeaders: map[string]string{"x-from": "{topic}/{key}", "Authorization": "Tenant {header:x-tenant}", "content-type": "text/{topic}"},
	}, outbox.Message{ID: "i", Topic: "orders", Key: "a/b ü", Payload: []byte("{}"), Headers: map[string]string{"x-tenant": "a&b=c"}})
	if want := "/orders/a%2Fb%20%C3%BC?tenant=a%26b%3Dc"; got.path != want {
		t.Errorf("the path is %s, want %s", got.path, want)
	}
	for name, want := range map[string]string{"X-From": "orders/a/b ü", "Authorization": "Tenant a&b=c", "Content-Type": "text/orders", "X-Tenant": "a&b=c"} {
		if got := got.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestMessageThatCannotFillATemplateIsRejected(t *testing.T) {
	t.Parallel()
	requests := 0
	sink := newSink(t, httpsink.Options{
		URL:            answering(t, func(http.ResponseWriter, *http.Request) { requests++ }) + "/{key}",
		MessageHeaders: map[string]string{"X-From": "{header:from}", "X-Key": "{key}"},
	})
	for want, change := range map[string]func(*sinks.Message){
		"the url can't contain the message's key, which is empty":                                  func(m *sinks.Message) { m.Key = "" },
		`the header "X-From" needs the message's header from, which is missing`:                    func(m *sinks.Message) { m.Headers = nil },
		`the header "X-Key" has a line break or another control character, which HTTP can't carry`: func(m *sinks.Message) { m.Key = "a\r\nb: c" },
		`the header "X-Key" begins or ends with a space`:                                           func(m *sinks.Message) { m.Key = "a " },
		`the header "x-from" is set by the sink's configuration`:                                   func(m *sinks.Message) { m.Headers["x-from"] = "mine" },
		"the url has a segment of one or two dots in its path":                                     func(m *sinks.Message) { m.Key = ".." },
	} {
		m := message("k")
		m.Headers = map[string]string{"from": "a"}
		change(&m)
		if o := sendOne(t, sink, m); o.Result != sinks.Reject || o.Reason != sinks.ReasonInvalid || !strings.HasPrefix(o.Detail, want) {
			t.Errorf("%+v, want %s", o, want)
		}
	}
	if requests > 0 {
		t.Errorf("%d requests were made", requests)
	}
}

func TestTemplateOptionsAreChecked(t *testing.T) {
	t.Parallel()
	const good = "https://example.com"
	headers := func(name, value string) map[string]string { return map[string]string{name: value} }
	tests := []struct {
		options httpsink.Options
		want    string
	}{
		{httpsink.Options{URL: good + "/{s3cret}"}, "the url has an unknown placeholder"},
		{httpsink.Options{URL: good, MessageHeaders: headers("X", "{s3cret}")}, `the message headers can't be sent: "X" has an unknown placeholder`},
		{httpsink.Options{URL: good, MessageHeaders: headers("X", "")}, `"X" has no value`},
		{httpsink.Options{URL: good, MessageHeaders: headers("Host", "{key}")}, `"Host" belongs to`},
		{httpsink.Options{URL: good, MessageHeaders: headers("X", "s3cret\n")}, `"X" has a line break`},
		{httpsink.Options{URL: good, MessageHeaders: headers("x", "{key}"), Headers: map[string]settings.Secret{"X": "s3cret"}}, `"X" is also set in the headers`},
		{httpsink.Options{URL: good, MessageHeaders: headers("authorization", "{key}"), BearerToken: "s3cret"}, "only one of"},
		{httpsink.Options{URL: good, AllowedNetworks: []string{"10.0.0.1"}}, `the allowed networks contain "10.0.0.1", which is not a network`},
		{httpsink.Options{URL: good, AllowedNetworks: []string{"0.0.0.0/0"}}, "too large"},
		{httpsink.Options{URL: good, AllowedNetworks: []string{"::/7"}}, "too large"},
		{httpsink.Options{URL: "{header:url}", BearerToken: "s3cret"}, "lets messages send the credentials to any host"},
		{httpsink.Options{URL: "https://{key}/", Username: "u", Password: "s3cret"}, "lets messages send the credentials to any host"},
		{httpsink.Options{URL: "{header:scheme}://h/", Headers: map[string]settings.Secret{"Authorization": "s3cret"}}, "lets messages send the credentials to any host"},
		{httpsink.Options{URL: "https://h:{key}/", OAuth2: oauth2.Options{TokenURL: good, ClientID: "i", ClientSecret: "s3cret"}}, "lets messages send the credentials to any host"},
		{httpsink.Options{URL: "https://{key}.example.com/", BearerToken: "s3cret"}, ""},
	}
	for _, test := range tests {
		_, err := httpsink.New(test.options)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: got %v, want %s", test.options.URL, err, test.want)
		}
	}
}

// Braces, which are not allowed in a URL, survive the command line; escaped braces
// stay escaped.
func TestTemplatesInSinkURLs(t *testing.T) {
	t.Parallel()
	var path string
	url := answering(t, func(_ http.ResponseWriter, r *http.Request) { path = r.RequestURI })
	for suffix, want := range map[string]string{
		"/hooks/{topic}?k={key}": "/hooks/t?k=k", "/%7Btopic%7D/a%2Fb": "/%7Btopic%7D/a%2Fb", "/ü/{topic}": "/%C3%BC/t", "/a%2Fb/{topic}": "/a%2Fb/t",
	} {
		sink, err := registry(t).FromURL(url + suffix)
		if err != nil {
			t.Errorf("%s: %v", suffix, err)
			continue
		}
		if o := sendOne(t, sink, message("k")); o.Result != sinks.Delivered || path != want {
			t.Errorf("%s: %s, want %s; %+v", suffix, path, want, o)
		}
		check(t, sink.Close(t.Context()))
	}
}

// If an endpoint refuses a message, or fails on it, the beginning of its answer is
// stored in the row, without the secrets of the request.
func TestRowStoresTheExcerpt(t *testing.T) {
	t.Parallel()
	url := answering(t, func(w http.ResponseWriter, r *http.Request) {
		status := map[string]int{"refused": 422, "failed": 500}[r.Header.Get("Rowrelay-Topic")]
		w.WriteHeader(status)
		_, _ = w.Write([]byte("no such order\n(" + r.URL.Path + ", " + r.Header.Get("Authorization") + ")"))
	})
	d := newTable(t)
	sink := newUnclosed(t, httpsink.Options{URL: url + "/hooks-s3cret/{header:capability}", BearerToken: "t0ken-s3cret"})
	for _, topic := range []string{"refused", "failed"} {
		d.write(outbox.Message{Topic: topic, Headers: map[string]string{"capability": "c4pability"}})
	}
	d.relay(relay.Options{Sinks: map[string]relay.SinkOptions{"http": {Sink: sink, MaxAttempts: 2, JudgeAloneAfter: relay.JudgeAtOnce, Backoff: relay.Backoff{Min: 1, Max: 1}}}})
	d.eventually("both messages are parked", func() bool { return d.counts()[storage.StateError] == 2 })
	for _, row := range d.list(storage.StateError) {
		want := "refused: 422 Unprocessable Entity: no such order ([secret], Bearer [secret])"
		if row.Message.Topic == "failed" {
			want = "exhausted: server_error: 500 Internal Server Error: no such order ([secret], Bearer [secret])"
		}
		if row.LastError != want {
			t.Errorf("%s: %q, want %q", row.Message.Topic, row.LastError, want)
		}
	}
}
