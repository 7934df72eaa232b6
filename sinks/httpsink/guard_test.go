package httpsink_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// Without the guard, each of these would connect to a private address.
var insideHosts = []string{
	"127.0.0.1", "127.1.2.3", "127.255.255.254", "localhost", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1",
	"100.100.100.200", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "192.0.0.192",
	"198.18.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.0.2.1", "198.51.100.7", "203.0.113.9",
	"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::127.0.0.1]", "[64:ff9b::a00:1]", "[64:ff9b:1::1]", "[100::1]", "[2001::1]",
	"[2001:db8::1]", "[2002:7f00:1::1]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1%25lo]", "[fec0::1]", "[ff02::1]",
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	for _, host := range insideHosts {
		sink, err := httpsink.New(httpsink.Options{URL: "http://" + host + ":9/", BlockPrivateAddresses: true})
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		got := sendOne(t, sink, message("k"))
		if got.Result != sinks.Reject || got.Reason != sinks.ReasonRefused || !strings.Contains(got.Detail, "is not public") {
			t.Errorf("%s: %+v", host, got)
		}
		_ = sink.Close(t.Context())
	}
}

// Neither a direct connection nor a proxy of the environment reaches the server.
func TestPrivateAddressesGetNoRequest(t *testing.T) {
	address := answering(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	proxy, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTP_PROXY", proxy.String())
	for _, target := range []string{address, "http://internal.example/"} {
		sink, err := httpsink.New(httpsink.Options{URL: target, BlockPrivateAddresses: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := sendOne(t, sink, message("k")); got.Result == sinks.Delivered {
			t.Errorf("%s: %+v", target, got)
		}
		_ = sink.Close(t.Context())
	}
}

// The sink tries the public addresses only. If they can't be reached, the message
// waits for them.
func TestNameWithPublicAndPrivateAddresses(t *testing.T) {
	t.Parallel()
	url := answering(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	names := newNames(t, map[string][]string{"inside-last.example": {"9.9.9.9,127.0.0.1"}, "inside-first.example": {"127.0.0.1,9.9.9.9"}})
	options := httpsink.Options{URL: "http://{topic}.example:" + port(t, url) + "/", Timeout: time.Minute}
	sink := newSink(t, options.Through(names.dialer()))
	for _, topic := range []string{"inside-last", "inside-first"} {
		m := message("k")
		m.Topic = topic
		o := sendOne(t, sink, m)
		if o.Result != sinks.Unsent || o.Reason != sinks.ReasonConnection || o.RetryAfter == 0 {
			t.Errorf("%s: %+v", topic, o)
		}
	}
}
