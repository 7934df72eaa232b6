package httpsink_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// authority issues numbered tokens and records what was wrong with a request.
type authority struct {
	asked  atomic.Int64
	answer atomic.Pointer[func(w http.ResponseWriter, n int64)]
	wrong  func(string, ...any)
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := a.asked.Add(1)
	id, secret, _ := r.BasicAuth()
	if id != "shop%2B" || secret != "s3cret%26" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "a b" {
		a.wrong("the request for a token is wrong: %q, %q, %v", id, secret, r.Form)
	}
	if answer := a.answer.Load(); answer != nil {
		(*answer)(w, n)
		return
	}
	fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, n)
}

func (a *authority) answering(answer func(w http.ResponseWriter, n int64)) { a.answer.Store(&answer) }

func withTokens(t *testing.T, endpoint http.HandlerFunc) (*httpsink.Sink, *authority) {
	t.Helper()
	a := &authority{wrong: t.Errorf}
	sink, err := httpsink.New(httpsink.Options{URL: answering(t, endpoint), Concurrency: 8, OAuth2: oauth2.Options{
		TokenURL: answering(t, a.ServeHTTP), ClientID: "shop+", ClientSecret: "s3cret&", Scopes: []string{"a", "b"},
	}})
	fatal(t, err)
	t.Cleanup(func() { _ = sink.Close(t.Context()) })
	return sink, a
}

func TestTokenIsRequestedOnce(t *testing.T) {
	t.Parallel()
	sink, a := withTokens(t, func(_ http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer token-1" {
			t.Errorf("Authorization is %q", got)
		}
	})
	fatal(t, sink.Open(t.Context()))
	var batch []sinks.Message
	for i := range 20 {
		batch = append(batch, message(fmt.Sprint(i)))
	}
	for _, o := range sink.Send(t.Context(), batch) {
		if o.Result != sinks.Delivered {
			t.Errorf("%+v", o)
		}
	}
	if n := a.asked.Load(); n != 1 {
		t.Errorf("%d tokens were requested", n)
	}
}

func TestRevokedTokenIsReplaced(t *testing.T) {
	t.Parallel()
	sink, a := withTokens(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer token-1" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	if got := sendOne(t, sink, message("k")); got.Result != sinks.Delivered {
		t.Errorf("%+v", got)
	}
	if n := a.asked.Load(); n != 2 {
		t.Errorf("%d tokens were requested", n)
	}
}

func TestTokenIsReplacedBeforeItExpires(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	sink, a := withTokens(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Get("Authorization"))
	})
	a.answering(func(w http.ResponseWriter, n int64) {
		fmt.Fprintf(w, `{"access_token":"short-%d","expires_in":0.000001}`, n)
	})
	for range 2 {
		sendOne(t, sink, message("k"))
	}
	if strings.Join(seen, " ") != "Bearer short-1 Bearer short-2" {
		t.Errorf("sent with %q", seen)
	}
}

// If an endpoint repeats the token, the token is removed from the stored answer.
func TestOutcomesContainNoToken(t *testing.T) {
	t.Parallel()
	sink, _ := withTokens(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, "bad: ", r.Header.Get("Authorization"))
	})
	if got := sendOne(t, sink, message("k")); got.Result != sinks.Reject || strings.Contains(got.Detail, "token-1") || !strings.Contains(got.Detail, "bad: Bearer [secret]") {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsSentWithoutAToken(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter){
		"refused":   func(w http.ResponseWriter) { w.WriteHeader(401); fmt.Fprint(w, `{"error":"invalid_client"}`) },
		"broken":    func(w http.ResponseWriter) { w.WriteHeader(500) },
		"no JSON":   func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") },
		"no token":  func(w http.ResponseWriter) { fmt.Fprint(w, `{"expires_in":1}`) },
		"bad token": func(w http.ResponseWriter) { fmt.Fprint(w, `{"access_token":"a\nb"}`) },
	} {
		sink, a := withTokens(t, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: a request arrived", name) })
		a.answering(func(w http.ResponseWriter, _ int64) { answer(w) })
		got := sendOne(t, sink, message("k"))
		if got.Result != sinks.Unavailable || got.Reason != sinks.ReasonAuth || strings.Contains(got.Detail, "s3cret") {
			t.Errorf("%s: %+v", name, got)
		}
		if err := sink.Open(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: opened with %v", name, err)
		}
	}
}

func TestInvalidOAuth2Options(t *testing.T) {
	t.Parallel()
	whole := oauth2.Options{TokenURL: "https://id.example/token", ClientID: "id", ClientSecret: "s3cret"}
	for name, change := range map[string]func(*httpsink.Options){
		"no url":       func(o *httpsink.Options) { o.OAuth2.TokenURL = "" },
		"no id":        func(o *httpsink.Options) { o.OAuth2.ClientID = "" },
		"no secret":    func(o *httpsink.Options) { o.OAuth2.ClientSecret = "" },
		"and a token":  func(o *httpsink.Options) { o.BearerToken = "t" },
		"and a login":  func(o *httpsink.Options) { o.Username = "u" },
		"not http":     func(o *httpsink.Options) { o.OAuth2.TokenURL = "ftp://id.example/token" },
		"a login":      func(o *httpsink.Options) { o.OAuth2.TokenURL = "https://u:s3cret@id.example/token" },
		"only scopes":  func(o *httpsink.Options) { o.OAuth2 = oauth2.Options{Scopes: []string{"a"}} },
		"and a header": func(o *httpsink.Options) { o.Headers = map[string]settings.Secret{"authorization": "x"} },
	} {
		options := httpsink.Options{URL: "https://shop.example/", OAuth2: whole}
		change(&options)
		if _, err := httpsink.New(options); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Some servers send expires_in as a string, or as something that is no number.
func TestTokensWithAnUnusualLifetime(t *testing.T) {
	t.Parallel()
	for expires, asked := range map[string]int64{`"3600"`: 1, `" 3600 "`: 1, `3600.5`: 1, `"never"`: 1, `null`: 1, `{}`: 1, `1e400`: 1, `"-1"`: 1, `""`: 1} {
		sink, a := withTokens(t, func(_ http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Authorization"); got != "Bearer token-1" {
				t.Errorf("%s: Authorization is %q", expires, got)
			}
		})
		a.answering(func(w http.ResponseWriter, n int64) {
			fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":%s,"error":null}`, n, expires)
		})
		for range 2 {
			if o := sendOne(t, sink, message("k")); o.Result != sinks.Delivered {
				t.Errorf("%s: %+v", expires, o)
			}
		}
		if n := a.asked.Load(); n != asked {
			t.Errorf("%s: %d tokens were requested", expires, n)
		}
	}
}

// The member "error" of a token server's answer need not be a string, because the
// sink decides by the status.
func TestTokenErrorThatIsAnObject(t *testing.T) {
	t.Parallel()
	sink, a := withTokens(t, func(http.ResponseWriter, *http.Request) {})
	a.answering(func(w http.ResponseWriter, _ int64) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"code":7}}`)
	})
	if o := sendOne(t, sink, message("k")); o.Reason != sinks.ReasonAuth || !strings.Contains(o.Detail, "answers 400") {
		t.Errorf("%+v", o)
	}
}

// Whatever its status, a redirect leads neither a message with its token nor a token request with its secret to another
// server.
func TestRedirectsLeakNoCredentials(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		elsewhere := answering(t, func(_ http.ResponseWriter, r *http.Request) {
			t.Errorf("%d: %s arrived with %v", status, r.Method, r.Header)
		})
		away := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, status) }
		sink, _ := withTokens(t, away)
		if o := sendOne(t, sink, message("k")); o.Result != sinks.Retry || o.Reason != sinks.ReasonRefused {
			t.Errorf("%d of the endpoint: %+v", status, o)
		}
		sink, a := withTokens(t, func(http.ResponseWriter, *http.Request) { t.Errorf("%d: a message arrived without a token", status) })
		a.answering(func(w http.ResponseWriter, _ int64) {
			w.Header().Set("Location", elsewhere)
			w.WriteHeader(status)
		})
		if o := sendOne(t, sink, message("k")); o.Result != sinks.Unavailable || o.Reason != sinks.ReasonAuth || !strings.Contains(o.Detail, fmt.Sprint("the token url answers ", status)) {
			t.Errorf("%d of the token url: %+v", status, o)
		}
	}
}
