package httpsink_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// request is a request that an endpoint received.
type request struct {
	method, path, body string
	header             http.Header
	length             int64
}

// requestOf sends a message and returns the request for it.
func requestOf(t *testing.T, options httpsink.Options, m outbox.Message) request {
	t.Helper()
	var seen request
	options.URL = answering(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = request{r.Method, r.URL.String(), string(body), r.Header, r.ContentLength}
	}) + options.URL
	if o := sendOne(t, newSink(t, options), sinks.Message{Message: m, Attempt: 3}); o != sinks.Ok("200") {
		t.Errorf("outcome %+v", o)
	}
	return seen
}

func TestRequest(t *testing.T) {
	t.Parallel()
	got := requestOf(t, httpsink.Options{URL: "/hook?a=b"}, outbox.Message{
		ID: "0195c0de-0000-7000-8000-000000000001", Topic: "orders", Key: "größe 7%",
		Payload: []byte(`{"order":1}`), Headers: map[string]string{"traceparent": "00-1", "X-Umlaut": "ü", "rowrelay-dead-letter-reason": "refused"},
	})
	want := http.Header{
		"Rowrelay-Dead-Letter-Reason": {"refused"},

		"Idempotency-Key":  {"0195c0de-0000-7000-8000-000000000001"},
		"Rowrelay-Topic":   {"orders"},
		"Rowrelay-Key":     {"gr%C3%B6%C3%9Fe%207%25"},
		"Rowrelay-Attempt": {"3"},
		"Content-Type":     {"application/json"},
		"Content-Length":   {"11"},
		"Traceparent":      {"00-1"},
		"X-Umlaut":         {"ü"},
		"User-Agent":       {"rowrelay"},
	}
	if !maps.EqualFunc(got.header, want, slices.Equal) {
		t.Errorf("the header is\n%v, want\n%v", got.header, want)
	}
	if got.method != "POST" || got.path != "/hook?a=b" || got.body != `{"order":1}` {
		t.Errorf("the request is %s %s %s", got.method, got.path, got.body)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		payload           []byte
		contentType, null string
	}{
		"NULL":           {nil, "", "null"},
		"empty":          {[]byte{}, "application/octet-stream", ""},
		"object":         {[]byte(" \n{}"), "application/json", ""},
		"array":          {[]byte("[1]"), "application/json", ""},
		"number":         {[]byte("1"), "application/octet-stream", ""},
		"string":         {[]byte(`"text"`), "application/octet-stream", ""},
		"almost JSON":    {[]byte(`{"a":}`), "application/octet-stream", ""},
		"binary":         {[]byte{0xff, 0}, "application/octet-stream", ""},
		"twice an array": {[]byte("[1][2]"), "application/octet-stream", ""},
	}
	for name, test := range tests {
		for _, method := range []string{"POST", "PUT"} {
			got := requestOf(t, httpsink.Options{Method: method}, outbox.Message{ID: "i", Topic: "t", Payload: test.payload})
			if got.method != method || got.body != string(test.payload) || got.length != int64(len(test.payload)) {
				t.Errorf("%s: %s with %d bytes: %q", name, got.method, got.length, got.body)
			}
			if contentType := got.header.Get("Content-Type"); contentType != test.contentType {
				t.Errorf("%s: Content-Type %q, want %q", name, contentType, test.contentType)
			}
			if null := got.header.Get("Rowrelay-Payload"); null != test.null {
				t.Errorf("%s: Rowrelay-Payload %q, want %q", name, null, test.null)
			}
			if _, there := got.header["Rowrelay-Key"]; there {
				t.Errorf("%s: a message without a key has one", name)
			}
		}
	}
}

func TestConfiguredHeaders(t *testing.T) {
	t.Parallel()
	options := httpsink.Options{
		ContentType: "application/cloudevents+json",
		Headers:     map[string]settings.Secret{"x-tenant": "7", "user-agent": "shop"},
		BearerToken: "t0ken",
	}
	got := requestOf(t, options, outbox.Message{ID: "i", Topic: "t", Payload: []byte("{}")}).header
	for name, want := range map[string]string{
		"Content-Type": "application/cloudevents+json", "X-Tenant": "7", "User-Agent": "shop", "Authorization": "Bearer t0ken",
	} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
	own := map[string]string{"content-type": "text/plain", "USER-AGENT": "mine"}
	got = requestOf(t, options, outbox.Message{ID: "i", Topic: "t", Payload: []byte("{}"), Headers: own}).header
	if got.Get("Content-Type") != "text/plain" || got.Get("User-Agent") != "mine" {
		t.Errorf("the message's Content-Type and User-Agent arrived as %q and %q", got.Get("Content-Type"), got.Get("User-Agent"))
	}
}

func TestAuthorizationHeader(t *testing.T) {
	t.Parallel()
	tests := []struct {
		options httpsink.Options
		headers map[string]string // of the message
		want    string
	}{
		{httpsink.Options{BearerToken: "abc"}, nil, "Bearer abc"},
		{httpsink.Options{Username: "u", Password: "p:w"}, nil, "Basic dTpwOnc="},
		{httpsink.Options{Username: "u"}, nil, "Basic dTo="},
		{httpsink.Options{Headers: map[string]settings.Secret{"authorization": "Digest d"}}, nil, "Digest d"},
		{httpsink.Options{}, map[string]string{"authorization": "Bearer of the message"}, "Bearer of the message"},
		{httpsink.Options{}, nil, ""},
	}
	for _, test := range tests {
		got := requestOf(t, test.options, outbox.Message{ID: "i", Topic: "t", Headers: test.headers})
		if got := got.header.Get("Authorization"); got != test.want {
			t.Errorf("Authorization is %q, want %q", got, test.want)
		}
	}
}

func TestInvalidHeadersAreRejected(t *testing.T) {
	t.Parallel()
	requests := 0
	sink := newSink(t, httpsink.Options{
		URL:         answering(t, func(http.ResponseWriter, *http.Request) { requests++ }),
		Headers:     map[string]settings.Secret{"X-Tenant": "7"},
		BearerToken: "t0ken",
	})
	const reserved = "belongs to the connection or to the sink and can't be set"
	tests := []struct{ name, value, want string }{
		{"", "v", "has a name that HTTP can't carry"},
		{"a name", "v", "has a name that HTTP can't carry"},
		{"name:", "v", "has a name that HTTP can't carry"},
		{"größe", "v", "has a name that HTTP can't carry"},
		{"x-lines", "s3cret\r\nHost: evil", "has a line break or another control character, which HTTP can't carry"},
		{"x-null", "s3cret\x00", "has a line break or another control character, which HTTP can't carry"},
		{"x-delete", "s3cret\x7f", "has a line break or another control character, which HTTP can't carry"},
		{"x-space", " s3cret", "begins or ends with a space, which HTTP can't carry"},
		{"x-tab", "s3cret\t", "begins or ends with a space, which HTTP can't carry"},
		{"x-tenant", "8", "is set by the sink's configuration"},
		{"authorization", "Bearer other", "is set by the sink's configuration"},
		{"Host", "v", reserved}, {"content-length", "1", reserved}, {"Transfer-Encoding", "chunked", reserved},
		{"Connection", "close", reserved}, {"keep-alive", "v", reserved}, {"TE", "trailers", reserved},
		{"trailer", "v", reserved}, {"upgrade", "h2c", reserved}, {"HTTP2-Settings", "v", reserved},
		{"Proxy-Authorization", "v", reserved}, {"proxy-connection", "v", reserved}, {"Proxy-Authenticate", "v", reserved},
		{"expect", "100-continue", reserved}, {"idempotency-key", "v", reserved}, {"Rowrelay-Topic", "v", reserved},
		{"rowrelay-anything", "v", reserved},
	}
	for _, test := range tests {
		m := message("k")
		m.Headers = map[string]string{test.name: test.value}
		o := sendOne(t, sink, m)
		if o.Result != sinks.Reject || o.Reason != sinks.ReasonInvalid || !strings.HasSuffix(o.Detail, " "+test.want) || strings.Contains(o.Detail, "s3cret") {
			t.Errorf("%s: %+v, want %s", test.name, o, test.want)
		}
		if test.name != "größe" && !strings.Contains(o.Detail, test.name) {
			t.Errorf("%s is not named: %s", test.name, o.Detail)
		}
	}
	twice := message("k")
	twice.Headers = map[string]string{"x-case": "1", "X-Case": "2"}
	if o := sendOne(t, sink, twice); o.Result != sinks.Reject || !strings.Contains(o.Detail, "is set twice") {
		t.Errorf("twice: %+v", o)
	}
	if requests > 0 {
		t.Errorf("%d requests were made", requests)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	const good = "https://example.com"
	tests := []struct {
		options httpsink.Options
		want    string
	}{
		{httpsink.Options{}, "the url must begin with http:// or https://"},
		{httpsink.Options{URL: "ftp://s3cret"}, "the url must begin with http:// or https://"},
		{httpsink.Options{URL: "https:///s3cret"}, "the url has no host"},
		{httpsink.Options{URL: "https://u:s3cret@host"}, "the url must not have a user name or password"},
		{httpsink.Options{URL: "https://host:s3cret"}, "the url is malformed"},
		{httpsink.Options{URL: "https://host/#s3cret"}, "the url must not have a fragment"},
		{httpsink.Options{URL: good, Method: "GET"}, `the method "GET" must be POST or PUT`},
		{httpsink.Options{URL: good, Timeout: -1}, "must not be negative"},
		{httpsink.Options{URL: good, Concurrency: -1}, "must not be negative"},
		{httpsink.Options{URL: good, ContentType: "text/\n"}, "the content type has a line break"},
		{httpsink.Options{URL: good, BearerToken: "s3cret\n"}, "the bearer token has a line break"},
		{httpsink.Options{URL: good, Username: "a:b"}, "the user name must not contain a colon"},
		{httpsink.Options{URL: good, BearerToken: "s3cret", Username: "u"}, "only one of"},
		{httpsink.Options{URL: good, Password: "s3cret", Headers: map[string]settings.Secret{"authorization": "s3cret"}}, "only one of"},
		{httpsink.Options{URL: good, Headers: map[string]settings.Secret{"X": ""}}, `the headers can't be sent: "X" has no value`},
		{httpsink.Options{URL: good, Headers: map[string]settings.Secret{"X": "s3cret\n"}}, `the headers can't be sent: "X" has a line break`},
		{httpsink.Options{URL: good, Headers: map[string]settings.Secret{"a b": "s3cret"}}, `the headers can't be sent: "a b" has a name that HTTP can't carry`},
		{httpsink.Options{URL: good, Headers: map[string]settings.Secret{"Host": "s3cret"}}, `the headers can't be sent: "Host" belongs to`},
		{httpsink.Options{URL: good, Headers: map[string]settings.Secret{"x-a": "s3cret", "X-A": "s3cret"}}, `the headers can't be sent: "x-a" is set twice`},
	}
	for _, test := range tests {
		_, err := httpsink.New(test.options)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	_, err := httpsink.New(httpsink.Options{Method: "GET", Timeout: -1, BearerToken: "\n", Username: "u"})
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 4 {
		t.Errorf("want all four problems:\n%v", err)
	}
}
