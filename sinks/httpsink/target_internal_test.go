package httpsink

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// odd is a message whose values have characters with a meaning in each part of a
// URL.
var odd = &sinks.Message{Message: outbox.Message{
	ID: "a b", Topic: "orders.v1", Key: "ü/?#&=+%\"..;",
	Headers: map[string]string{
		"tenant": "acme", "dot": ".", "lines": "a\r\nb: c", "empty": "", "scheme": "https", "ftp": "ftp", "Port": "8443", "zero": "0", "word": "http",
		"host": "example.com", "six": "[2001:db8::1]", "hostport": "example.com:8443", "user": "u@h", "slash": "h/p", "query": "h?q", "hash": "h#f",
		"back": `h\p`, "percent": "h%41", "wide": "ⓔxample.com", "colon": "a:b",
		"url": "https://example.com:8443/a%2Fb/?q=1", "base": "https://example.com/hooks/", "login": "https://u:p@example.com", "none": "example.com/x",
		"fragment": "https://example.com/#f", "up": "https://example.com/a/../b", "up2": "https://example.com/a/%2e%2E/b", "numeric": "http://2130706433/",
	},
}}

func TestTemplateURLs(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"https://h/hooks/{topic}":                       "https://h/hooks/orders.v1",
		"https://h/{key}":                               "https://h/%C3%BC%2F%3F%23&=+%25%22..%3B",
		"https://h/a{id}b/{header:tenant}?":             "https://h/aa%20bb/acme?",
		"https://h/x?tenant={header:tenant}&k={key}":    "https://h/x?tenant=acme&k=%C3%BC%2F%3F%23%26%3D%2B%25%22..%3B",
		"https://h?{id}":                                "https://h?a+b",
		"https://h/{header:lines}":                      "https://h/a%0D%0Ab:%20c",
		"https://h/?{header:lines}":                     "https://h/?a%0D%0Ab%3A+c",
		"https://h/{header:dot}{header:dot}.":           "https://h/...",
		"https://h/?{header:dot}/..":                    "https://h/?./..",
		"https://h/a b/\"^|größe/{{x}}/{header:base}":   "https://h/a%20b/%22%5E%7Cgr%C3%B6%C3%9Fe/%7Bx%7D/https:%2F%2Fexample.com%2Fhooks%2F",
		"https://h/%7Btopic%7D/{topic}":                 "https://h/%7Btopic%7D/orders.v1",
		"{header:scheme}://{header:host}/{topic}":       "https://example.com/orders.v1",
		"http://{header:host}:{header:Port}/":           "http://example.com:8443/",
		"http://{header:hostport}":                      "http://example.com:8443",
		"http://{header:six}:80":                        "http://[2001:db8::1]:80",
		"http://{header:tenant}.example.com/{id}":       "http://acme.example.com/a%20b",
		"http://a.{header:tenant}{header:dot}com":       "http://a.acme.com",
		"{header:url}":                                  "https://example.com:8443/a%2Fb/?q=1",
		"{header:base}/{topic}?k={header:tenant}":       "https://example.com/hooks/orders.v1?k=acme",
		"{header:base}?k={header:tenant}":               "https://example.com/hooks/?k=acme",
		"https://h/{header:dot}{header:dot}":            "segment of one or two dots",
		"https://h/x/{header:dot}/y":                    "segment of one or two dots",
		"https://h/{header:empty}":                      "can't contain the message's header empty, which is empty",
		"https://h/{header:Tenant}":                     "needs the message's header Tenant, which is missing",
		"{header:ftp}://h":                              "the message's header ftp, which must be http or https",
		"http://{header:user}":                          "header user, which has a character that a host or port can't have",
		"http://{header:slash}.example.com":             "a character that a host or port can't have",
		"http://{header:query}.example.com":             "a character that a host or port can't have",
		"http://{header:hash}.example.com":              "a character that a host or port can't have",
		"http://{header:back}.example.com":              "a character that a host or port can't have",
		"http://{header:percent}.example.com":           "a character that a host or port can't have",
		"http://{header:wide}":                          "a character that a host or port can't have",
		"http://{key}.example.com":                      "a character that a host or port can't have",
		"http://{header:colon}.example.com":             "malformed",
		"http://h:{header:zero}":                        "has a port that is not a number from 1 to 65535",
		"http://h:{header:word}":                        "malformed",
		"http://h{header:dot}{header:dot}x":             "has a host that is not a valid name",
		"http://{header:Port}":                          "an address in an unusual form",
		"http://{header:host}.0x7f":                     "an address in an unusual form",
		"http://{header:dot}":                           "has a host that is not a valid name",
		"{header:none}":                                 "must begin with http:// or https://",
		"{header:login}":                                "must not have a user name or password",
		"{header:fragment}":                             "must not have a fragment",
		"{header:up}":                                   "segment of one or two dots",
		"{header:up2}":                                  "segment of one or two dots",
		"{header:numeric}":                              "an address in an unusual form",
		"{header:url}/more":                             "has a query, although the template continues after the placeholder",
		"https://" + strings.Repeat("a", 64) + ".{key}": "a host or port can't have",
	} {
		target, err := parseTarget(template)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		got, err := target.of(odd)
		switch {
		case err == nil && got.String() != want:
			t.Errorf("%s: %s, want %s", template, got, want)
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %s", template, err, want)
		}
	}
}

func TestTemplateChoosesTheHost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ chosen, anchored bool }{
		"https://h/{topic}?{id}":               {false, true},
		"https://h?u={key}":                    {false, true},
		"https://{key}.example.com/{id}":       {true, true},
		"https://{key}.example.com:8443":       {true, true},
		"https://{key}":                        {true, false},
		"https://{key}:443/":                   {true, false},
		"https://h:{key}/":                     {true, false},
		"https://example.com{key}":             {true, false},
		"https://{topic}.{key}/":               {true, false},
		"https://{key}./":                      {true, false},
		"{header:s}://h/":                      {true, false},
		"{header:s}://{key}.example.com/":      {true, false},
		"{header:url}":                         {true, false},
		"{header:url}/x?next=https://h/{id}":   {true, false},
		"{header:url}?next=https://h/{id}":     {true, false},
		"https://h/?next={header:s}://{topic}": {false, true},
	}
	for template, want := range tests {
		target, err := parseTarget(template)
		if err != nil || target.chosen != want.chosen || target.anchored != want.anchored {
			t.Errorf("%s: chosen %v, anchored %v, %v", template, target.chosen, target.anchored, err)
		}
	}
}

func TestInvalidURLTemplates(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"https://h/{nothing}":      "unknown placeholder",
		"https://h/{topic":         "unknown placeholder",
		"http{header:s}://h":       "the whole scheme",
		"{header:s}s://h":          "must continue with / or ?",
		"{header:a}{header:b}":     "must continue with / or ?",
		"{header:base}.example":    "must continue with / or ?",
		"{header:base}:80/":        "must continue with / or ?",
		"https://{key}@h/":         "must not have a user name or password",
		"https://u@{key}/":         "must not have a user name or password",
		"https://h/#{key}":         "must not have a fragment",
		"ftp://{key}/":             "must begin with http:// or https://",
		"https://[{key}]/":         "malformed",
		"https://h/\x00":           "malformed",
		"https:///{key}":           "has no host",
		"https://h/{key}\n":        "malformed",
		"{topic}/{header:base}://": "",
	} {
		if _, err := parseTarget(template); err == nil && want != "" || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", template, err, want)
		}
	}
}
