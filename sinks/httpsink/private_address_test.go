package httpsink_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// The texts of the refusals.
const (
	isInside  = "is not public, and this sink connects only to public addresses"
	unusual   = "has a host that is an address in an unusual form"
	noChar    = "has a character that a host or port can't have"
	noHost    = "has a character that a host can't have"
	userinfo  = "must not have a user name or password"
	malformed = "is malformed"
	noScheme  = "must begin with http:// or https://"
)

// tries are URLs, hosts and parts of host names in messages that would reach the private server
// at port PORT, each with the text of the refusal. The names are those of the test's name
// server.
var tries = []struct{ topic, value, refusal string }{
	{"url", "http://127.0.0.1:PORT/", isInside},
	{"url", "http://127.255.255.254:PORT/", isInside},
	{"url", "http://localhost:PORT/", isInside},
	{"url", "http://LocalHost:PORT/", isInside},
	{"url", "http://localhost.:PORT/", isInside},
	{"url", "http://0.0.0.0:PORT/", isInside},
	{"url", "http://[::]:PORT/", isInside},
	{"url", "http://[::1]:PORT/", isInside},
	{"url", "http://[0:0:0:0:0:0:0:1]:PORT/", isInside},
	{"url", "http://[::ffff:127.0.0.1]:PORT/", isInside},
	{"url", "http://[::ffff:7f00:1]:PORT/", isInside},
	{"url", "http://[::127.0.0.1]:PORT/", isInside},
	{"url", "http://[64:ff9b::7f00:1]:PORT/", isInside},
	{"url", "http://[64:ff9b::127.0.0.1]:PORT/", isInside},
	{"url", "http://[64:ff9b:1::7f00:1]:PORT/", isInside},
	{"url", "http://[2002:7f00:1::]:PORT/", isInside},
	{"url", "http://[2001:0:7f00:1::]:PORT/", isInside},
	{"url", "https://10.0.0.1/", isInside},
	{"url", "https://192.168.1.1/", isInside},
	{"url", "https://172.16.0.1/", isInside},
	{"url", "https://[fd12:3456::1]/", isInside},
	{"url", "http://169.254.169.254/latest/meta-data/", isInside},
	{"url", "http://[fd00:ec2::254]/latest/meta-data/", isInside},
	{"url", "http://100.100.100.200/latest/meta-data/", isInside},
	{"url", "http://168.63.129.16/machine", isInside},
	{"url", "http://metadata.example/computeMetadata/v1/", isInside},
	{"url", "http://inside.example:PORT/", isInside},
	{"url", "http://inside6.example:PORT/", isInside},
	{"url", "http://mapped.example:PORT/", isInside},
	{"url", "http://rebinds.example:PORT/", isInside},
	{"url", "http://inside.example.:PORT/", isInside},
	{"url", "http://127.0.0.1.:PORT/", unusual},
	{"url", "http://127.1:PORT/", unusual},
	{"url", "http://0:PORT/", unusual},
	{"url", "http://2130706433:PORT/", unusual},
	{"url", "http://0x7f000001:PORT/", unusual},
	{"url", "http://0x7f.0.0.1:PORT/", unusual},
	{"url", "http://0177.0.0.1:PORT/", unusual},
	{"url", "http://017700000001:PORT/", unusual},
	{"url", "http://127.0.0.0x1:PORT/", unusual},
	{"url", "http://127.0.0.256:PORT/", unusual},
	{"url", "http://u:p@127.0.0.1:PORT/", userinfo},
	{"url", "http://example.com@127.0.0.1:PORT/", userinfo},
	{"url", "http://example.com:80@127.0.0.1:PORT/", userinfo},
	{"url", "http://127.0.0.1:PORT#@example.com/", "must not have a fragment"},
	{"url", "http://example.com#@127.0.0.1:PORT/", "must not have a fragment"},
	{"url", `http://127.0.0.1:PORT\@example.com/`, malformed},
	{"url", `http://example.com\@127.0.0.1:PORT/`, malformed},
	{"url", "http://[fe80::1%25lo]:PORT/", noHost},
	{"url", "http://%31%32%37.0.0.1:PORT/", malformed},
	{"url", "http://①②⑦.⓪.⓪.①:PORT/", noHost},
	{"url", "http://127。0。0。1:PORT/", noHost},
	{"url", "http://ⓛocalhost:PORT/", noHost},
	{"url", "//127.0.0.1:PORT/", noScheme},
	{"url", "127.0.0.1:PORT/", malformed},
	{"url", "gopher://127.0.0.1:PORT/_x", noScheme},
	{"url", "file:///etc/passwd", noScheme},
	{"url", "unix:///var/run/docker.sock", noScheme},
	{"url", " http://127.0.0.1:PORT/", malformed},
	{"host", "127.0.0.1:PORT", isInside},
	{"host", "[::1]:PORT", isInside},
	{"host", "localhost:PORT", isInside},
	{"host", "inside.example:PORT", isInside},
	{"host", "example.com@127.0.0.1:PORT", noChar},
	{"host", "127.0.0.1:PORT/x?", noChar},
	{"host", "127.0.0.1:PORT#", noChar},
	{"host", "localhost%00.example.com", noChar},
	{"name", "127.0.0.1:PORT/", noChar},
	{"name", "127.0.0.1:PORT?", noChar},
	{"name", "127.0.0.1:PORT#", noChar},
	{"name", `127.0.0.1:PORT\`, noChar},
	{"name", "u@", noChar},
	{"name", "127.0.0.1:PORT", malformed},
	{"name", "tenant-inside", isInside},
	{"redirect", "127.0.0.2:OTHER", "redirects are not followed"},
}

// No request arrives, and each message is parked with the refusal in its row.
func TestMessagesCannotReachPrivateAddresses(t *testing.T) {
	t.Parallel()
	inside := answering(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a request for %s arrived", r.Host) })
	leads := leading(t, inside)
	names := newNames(t, map[string][]string{
		"metadata.example": {"169.254.169.254"}, "inside.example": {"127.0.0.1"}, "inside6.example": {"::1"}, "mapped.example": {"::ffff:127.0.0.1"},
		"rebinds.example": {"9.9.9.9", "127.0.0.1"}, "localhost": {"127.0.0.1"}, "tenant-inside.example.com": {"127.0.0.1"},
	})
	ports := strings.NewReplacer("PORT", port(t, inside), "OTHER", port(t, leads))
	d := newTable(t)
	want := map[string]string{}
	for _, try := range tries {
		value := ports.Replace(try.value)
		want[try.topic+" "+value] = try.refusal
		d.write(outbox.Message{Topic: try.topic, Payload: []byte("{}"), Headers: map[string]string{"to": value}})
	}
	d.relay(relay.Options{Sinks: map[string]relay.SinkOptions{
		"url":      templated(t, names, "{header:to}"),
		"host":     templated(t, names, "http://{header:to}/{topic}"),
		"name":     templated(t, names, "http://{header:to}.example.com:"+port(t, inside)+"/"),
		"redirect": templated(t, names, "http://{header:to}/", "127.0.0.2/32"),
	}, Routes: routes("url", "host", "name", "redirect")})
	d.eventually("all are parked", func() bool { return d.counts()[storage.StateError] == int64(len(tries)) })
	for _, row := range d.list(storage.StateError) {
		try := row.Message.Topic + " " + row.Message.Headers["to"]
		if !strings.Contains(row.LastError, want[try]) || !strings.HasPrefix(row.LastError, "refused: ") && !strings.HasPrefix(row.LastError, "invalid: ") {
			t.Errorf("%s: %q, want %q", try, row.LastError, want[try])
		}
	}
	if names.times("rebinds.example") < 2 {
		t.Error("the name with changing answers was resolved only once")
	}
}

// leading is a server at another loopback address that redirects.
func leading(t *testing.T, to string) string {
	t.Helper()
	return "http://" + serving(t, "127.0.0.2:0", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusTemporaryRedirect) })
}

func serving(t *testing.T, address string, handler http.HandlerFunc) string {
	t.Helper()
	s := &server{t: t, handler: handler, address: address}
	s.start()
	t.Cleanup(s.stop)
	return s.address
}

func port(t *testing.T, url string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	check(t, err)
	return port
}

// templated returns a sink whose URL is filled by messages.
func templated(t *testing.T, names *names, url string, allowed ...string) relay.SinkOptions {
	t.Helper()
	options := httpsink.Options{URL: url, AllowedNetworks: allowed, Timeout: time.Minute}.Through(names.dialer())
	return relay.SinkOptions{Sink: newUnclosed(t, options), JudgeAloneAfter: relay.JudgeAtOnce, BreakerBackoff: relay.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}}
}

func routes(sinks ...string) (routes []relay.Route) {
	for _, name := range sinks {
		routes = append(routes, relay.Route{Topic: name, Sink: name})
	}
	return routes
}
