package httpsink

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// Whatever a message contains, it can't choose the host if the template doesn't let it, and it can't change how many
// segments the path has.
func FuzzTarget(f *testing.F) {
	f.Add("https://hooks.example/{topic}/{key}?id={id}", "orders", "../..", "1")
	f.Add("http://{key}.example.com:80/a", "t", "evil.test/", "@")
	f.Add("{topic}/events", "http://other.example", "k", "i")
	f.Add("{topic}://host/{{x}}/{id}", "https", "k", "%2e%2e")
	f.Fuzz(func(t *testing.T, template, topic, key, id string) {
		parsed, err := parseTarget(template)
		if err != nil {
			return
		}
		message := &sinks.Message{Message: outbox.Message{Topic: topic, Key: key, ID: id, Headers: map[string]string{}}}
		url, err := parsed.of(message)
		if err != nil {
			return
		}
		if url.Scheme != "http" && url.Scheme != "https" || url.Host == "" || url.User != nil && parsed.fixed == nil && !strings.Contains(template, "@") {
			t.Fatalf("%q with %q, %q, %q leads to %v", template, topic, key, id, url)
		}
		if parsed.chosen {
			return
		}
		if url.Host != parsed.host.Host || url.Scheme != parsed.host.Scheme {
			t.Errorf("%q with %q, %q, %q leads to the host %q instead of %q", template, topic, key, id, url.Host, parsed.host.Host)
		}
		if got, want := strings.Count(url.EscapedPath(), "/"), strings.Count(parsed.host.EscapedPath(), "/"); got != want {
			t.Errorf("%q with %q, %q, %q has %d slashes in %q, want %d", template, topic, key, id, got, url.EscapedPath(), want)
		}
	})
}
