package admin

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
)

func (d *desk) login(t *testing.T, headers ...string) *http.Cookie {
	t.Helper()
	answer := d.ask("POST", "/api/login", `{"token":"`+operators+`"}`, headers...)
	if answer.Code != 200 {
		t.Fatalf("the login got %d %s", answer.Code, answer.Body)
	}
	return answer.Result().Cookies()[0]
}

// If several processes share an address, a request for a job may reach another process. That process may have a job with the
// same number. It doesn't answer with its own job, but with an error that names the job's process.
func TestJobsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	one, other := newDesk(t, 3, nil), newDesk(t, 3, nil)
	preview := read[job](t, one.asOperator("POST", "/api/jobs", `{"action":"discard","all":true,"select":{},"preview":true}`))
	other.asOperator("POST", "/api/jobs", `{"action":"discard","all":true,"select":{},"preview":true}`)
	for path, body := range map[string]string{"/api/jobs/" + preview.ID: "", "/api/jobs/" + preview.ID + "/stop": "{}", "/api/jobs": `{"plan":"` + preview.ID + `"}`} {
		answer := other.asOperator(map[bool]string{true: "GET", false: "POST"}[body == ""], path, body)
		_, process, _ := strings.Cut(preview.ID, ".")
		if text := answer.Body.String(); answer.Code != http.StatusConflict || !strings.Contains(text, process) || !strings.Contains(text, `"elsewhere":true`) {
			t.Errorf("%s got %d %s", path, answer.Code, text)
		}
	}
}

// Browsers send a cookie to all ports of a host, so the cookies of the daemons on a host need different names.
func TestDaemonsOnOneHostHaveCookiesOfTheirOwn(t *testing.T) {
	t.Parallel()
	one, replica, other := newDesk(t, 0, nil), newDesk(t, 0, nil), newDesk(t, 0, func(o *Options) { o.ReaderToken = readers })
	cookie := one.login(t)
	if cookie.Name != replica.login(t).Name || cookie.Name == other.login(t).Name {
		t.Errorf("the names are %s, %s, %s", cookie.Name, replica.login(t).Name, other.login(t).Name)
	}
	if session := read[map[string]any](t, replica.ask("GET", "/api/session", "", "Cookie", cookie.Name+"="+cookie.Value)); session["role"] != "operator" {
		t.Errorf("a replica's session is %v", session)
	}
}

// After a log-out, the cookie of that login is refused, even by a Handler that takes over the State. Other cookies are still accepted.
func TestLogoutRevokes(t *testing.T) {
	t.Parallel()
	state := NewState()
	defer state.Close()
	with := func(o *Options) { o.State = state }
	d := newDesk(t, 0, with)
	left, stays := d.login(t), d.login(t)
	role := func(d *desk, c *http.Cookie) any {
		return read[map[string]any](t, d.ask("GET", "/api/session", "", "Cookie", c.Name+"="+c.Value))["role"]
	}
	if left.Value == stays.Value || role(d, left) != "operator" {
		t.Fatalf("the logins have the cookies %s and %s, and the first has the role %v", left.Value, stays.Value, role(d, left))
	}
	d.ask("POST", "/api/logout", "{}", "Cookie", left.Name+"="+left.Value)
	for _, pages := range []*desk{d, newDesk(t, 0, with)} {
		if role(pages, left) != "reader" || role(pages, stays) != "operator" {
			t.Errorf("after the log-out, that login has the role %v, and the other login %v", role(pages, left), role(pages, stays))
		}
	}
}

func TestCookiesAreSecureBehindTLS(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, nil)
	for _, test := range []struct {
		header, value string
		want          bool
	}{
		{"X-Forwarded-Proto", "https", true},
		{"X-Forwarded-Proto", "HTTPS, http", true},
		{"X-Forwarded-Proto", "http, https", false},
		{"X-Forwarded-Proto", "http", false},
		{"Forwarded", `for=192.0.2.1;proto=https;by=203.0.113.4`, true},
		{"Forwarded", `For="[2001:db8::1]"; Proto="https", for=10.0.0.1;proto=http`, true},
		{"Forwarded", `for=192.0.2.1, for=10.0.0.1;proto=https`, false},
		{"Forwarded", `proto=http`, false},
		{"X-Other", "https", false},
	} {
		if got := d.login(t, test.header, test.value).Secure; got != test.want {
			t.Errorf("%s: %s: Secure is %v", test.header, test.value, got)
		}
	}
}

// If a proxy serves the page under another name over plain HTTP, changes are refused with an explanation.
func TestAnotherOriginIsExplained(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, nil)
	answer := d.ask("POST", "/api/login", `{"token":"`+operators+`"}`, "Origin", "http://relay.example")
	if got := read[map[string]string](t, answer); answer.Code != 403 || !strings.Contains(got["error"], "relay.example") || !strings.Contains(got["error"], "Host header") {
		t.Errorf("got %d %v", answer.Code, got)
	}
}

// At most about ten wrong tokens are checked per second, and each one is counted. Right tokens are not delayed.
func TestWrongTokensAreSlowAndCounted(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(d *desk) int{
		"logins":   func(d *desk) int { return d.ask("POST", "/api/login", `{"token":"wrong"}`).Code },
		"requests": func(d *desk) int { return d.ask("POST", "/api/jobs", `{}`, "Authorization", "Bearer wrong").Code },
		"sessions": func(d *desk) int { return d.ask("GET", "/api/session", "", "Authorization", "Bearer wrong").Code },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var counted, refused, busy atomic.Int64
				d := newDesk(t, 0, func(o *Options) { o.LoginRefused = func() { counted.Add(1) } })
				began := time.Now()
				var guessing sync.WaitGroup
				for range 100 {
					guessing.Go(func() {
						switch code := try(d); code {
						case 401:
							refused.Add(1)
						case 429:
							busy.Add(1)
						default:
							t.Errorf("got %d", code)
						}
					})
				}
				guessing.Wait()
				took := time.Since(began)
				if refused.Load()+busy.Load() != 100 || counted.Load() != refused.Load() || float64(refused.Load()) > mostChecked*(took.Seconds()+1) || busy.Load() == 0 {
					t.Errorf("%d requests were refused in %v, %d got 429, and %d were counted", refused.Load(), took, busy.Load(), counted.Load())
				}
				began = time.Now()
				for range 20 {
					d.login(t)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("logins with right tokens took %v", took)
				}
			})
		})
	}
}

// A Watch can take over the data of another Watch.
func TestAWatchContinuesAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		before := NewWatch(nil, "main", "gone")
		for range 20 {
			time.Sleep(time.Second)
			before.Delivered("main", "t", time.Second)
			before.InMemory("main", 0, 0)
		}
		before.Attempted(relay.Attempt{ID: 7, MessageID: "m", Number: 1})
		before.Parked("main", sinks.ReasonInvalid)
		now := NewWatch(nil, "main", "new")
		now.Continue(before)
		for range 11 {
			time.Sleep(time.Second)
			now.Delivered("main", "t", 3*time.Second)
			now.InMemory("main", 0, 0)
		}
		points := now.History()
		if len(points) != 3 || points[2].Delivered < 10 || points[2].Delivered > 11 || points[2].Lag != 3 || len(now.attemptsOf(7, "m")) != 1 {
			t.Errorf("the points are %+v", points)
		}
		if got := fmt.Sprint(now.sinkReports(nil)[0].Delivered, now.sinkReports(nil)[0].Parked); got != "31 map[invalid:1]" {
			t.Errorf("the sink has %s", got)
		}
		now.Continue(nil)
	})
}
