package httpsink_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestOutcomeOfEachStatus(t *testing.T) {
	t.Parallel()
	type outcome struct {
		result sinks.Result
		reason sinks.Reason
	}
	delivered := outcome{sinks.Delivered, sinks.ReasonNone}
	throttled := outcome{sinks.Unavailable, sinks.ReasonThrottled}
	busy := outcome{sinks.Retry, sinks.ReasonBusy}
	failed := outcome{sinks.Retry, sinks.ReasonServerError}
	refused := outcome{sinks.Reject, sinks.ReasonRefused}
	accusing := outcome{sinks.Retry, sinks.ReasonRefused}
	login := outcome{sinks.Unavailable, sinks.ReasonAuth}
	noRight, nothing, gateway := outcome{sinks.Retry, sinks.ReasonAuth}, outcome{sinks.Retry, sinks.ReasonConfig}, outcome{sinks.Retry, sinks.ReasonConnection}
	tests := map[int]outcome{
		200: delivered, 201: delivered, 202: delivered, 204: delivered, 226: delivered, 299: delivered,
		300: accusing, 301: accusing, 302: accusing, 303: accusing, 304: accusing, 307: accusing, 308: accusing,
		400: refused, 401: noRight, 402: refused, 403: noRight, 404: nothing, 405: refused, 406: refused, 407: login,
		408: busy, 409: refused, 410: refused, 411: refused, 412: refused, 413: {sinks.Reject, sinks.ReasonTooLarge},
		414: refused, 415: refused, 418: refused, 421: accusing, 422: refused, 423: refused, 424: refused, 425: busy, 426: refused,
		428: refused, 429: throttled, 431: refused, 451: refused, 499: refused,
		500: failed, 501: failed, 502: gateway, 503: throttled, 504: gateway, 507: failed, 511: login, 520: failed, 599: failed, 600: failed,
	}
	status := 0
	sink := newSink(t, httpsink.Options{Concurrency: 1, URL: answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		if status > 304 {
			fmt.Fprint(w, "for a reason\n")
		}
	})})
	for answer, want := range tests {
		status = answer
		o := sendOne(t, sink, message("k"))
		if (outcome{o.Result, o.Reason}) != want {
			t.Errorf("%d: %+v, want %v %s", answer, o, want.result, want.reason)
		}
		waits := want.result == sinks.Retry || want.result == sinks.Unavailable
		if got := o.RetryAfter; waits != (got == 7*time.Second) || !waits && got != 0 {
			t.Errorf("%d: RetryAfter is %v", answer, got)
		}
		if want == delivered && (o.Receipt != fmt.Sprint(answer) || o.Detail != "") {
			t.Errorf("%d: %+v", answer, o)
		}
		if want != delivered && !strings.HasPrefix(o.Detail, fmt.Sprint(answer)) && !strings.HasPrefix(o.Detail, fmt.Sprint("redirected: ", answer)) {
			t.Errorf("%d: the detail is %q", answer, o.Detail)
		}
		excerpt := strings.HasSuffix(o.Detail, ": for a reason")
		if wanted := answer > 308 && want != throttled && want != login; excerpt != wanted {
			t.Errorf("%d: an excerpt in %q: %v, want %v", answer, o.Detail, excerpt, wanted)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	const general = "redirected: 307 Temporary Redirect; redirects are not followed" // the log omits only the text after a status
	const leads = general + ". This one leads to %s: set the url to that address"
	tests := map[string]string{
		"https://u:s3cret@other.example:8443/s3cret?s3cret#s3cret": fmt.Sprintf(leads, "other.example:8443"),
		"/s3cret":           fmt.Sprintf(leads, "HERE"),
		"":                  general,
		"http://%zz/s3cret": general,
		"mailto:s3cret":     general,
	}
	for location, want := range tests {
		requests := 0
		url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		o := sendOne(t, newSink(t, httpsink.Options{URL: url}), message("k"))
		want = strings.Replace(want, "HERE", strings.TrimPrefix(url, "http://"), 1)
		if o != sinks.Fail(sinks.Retry, sinks.ReasonRefused, want) || requests != 1 {
			t.Errorf("%q: %d requests, %+v, want %s", location, requests, o, want)
		}
	}
}

func TestDetailHasAnExcerptOfTheBody(t *testing.T) {
	t.Parallel()
	const secret = "s3cret/token"
	long := strings.Repeat("ü", 300)
	tests := map[string]string{
		"":                                   "",
		" \r\n\t ":                           "",
		"one\ntwo\r\n\tthree":                "one two three",
		"a\x00b\x1b[31mred\xff":              "a b [31mred",
		long:                                 strings.Repeat("ü", 100) + "…",
		"x" + long:                           "x" + strings.Repeat("ü", 99) + "…",
		strings.Repeat("y", 200):             strings.Repeat("y", 200),
		"the token is s3cret/token.":         "the token is [secret].",
		`{"token":"s3cret\/token"}`:          `{"token":"[secret]"}`,
		"no route for /hooks/abcdef?key=xyz": "no route for [secret]?[secret]",
		strings.Repeat(" ", 7000) + secret:   "[secret]",
	}
	for body, want := range tests {
		url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, body)
		})
		o := sendOne(t, newSink(t, httpsink.Options{URL: url + "/hooks/abcdef?key=xyz", BearerToken: secret}), message("k"))
		if got := strings.TrimPrefix(strings.TrimPrefix(o.Detail, "400 Bad Request"), ": "); got != want {
			t.Errorf("an answer of %q is shown as %q, want %q", body, got, want)
		}
	}
}

// Statuses in RejectStatuses park the message.
func TestRejectStatuses(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404} {
		sink := newSink(t, httpsink.Options{RejectStatuses: []int{status}, URL: answering(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })})
		if o := sendOne(t, sink, message("k")); o.Result != sinks.Reject || o.Reason != sinks.ReasonRefused {
			t.Errorf("%d: %+v", status, o)
		}
	}
	if _, err := httpsink.New(httpsink.Options{URL: "http://localhost", RejectStatuses: []int{404, 422}}); err == nil {
		t.Error("422 is accepted")
	}
}

// While the endpoint already requires a new token and the settings have the old one, no message is
// charged an attempt.
func TestRefusedCredentialsChargeNoAttempt(t *testing.T) {
	t.Parallel()
	url := answering(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	for name, options := range map[string]httpsink.Options{
		"bearer": {BearerToken: "t0ken"}, "basic": {Username: "user", Password: "p4ss"}, "header": {Headers: map[string]settings.Secret{"authorization": "x"}},
	} {
		options.URL = url
		if o := sendOne(t, newSink(t, options), message("k")); o.Result != sinks.Unavailable || o.Reason != sinks.ReasonAuth {
			t.Errorf("%s: %+v", name, o)
		}
		options.RejectStatuses = []int{401}
		if o := sendOne(t, newSink(t, options), message("k")); o.Result != sinks.Reject || o.Reason != sinks.ReasonRefused {
			t.Errorf("%s, rejected by choice: %+v", name, o)
		}
	}
}
