package admin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

const (
	readers   = "the-token-of-readers"
	operators = "the-token-of-operators"

	testCookie = "cookie" // in the tests' headers, a placeholder for the name of the cookie
)

// desk has the admin pages of a table in memory.
type desk struct {
	*Pages
	db    *memstore.DB
	store *memstore.Store
	watch *Watch
}

// newDesk returns a desk whose table has the given number of parked messages of the topic t. The first message holds its key.
func newDesk(t *testing.T, parked int, change func(*Options)) *desk {
	t.Helper()
	d := &desk{db: memstore.New(), watch: NewWatch(nil, "main", "other")}
	d.store = d.db.Store()
	for i := range parked {
		d.db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("k", i), Payload: fmt.Append(nil, "payload ", i), Headers: map[string]string{"tenant": "acme"}})
	}
	park(t, d.store)
	o := options(Source{Name: "a", Healthy: func() error { return nil }, Status: d.watch.Counting(d.store.Status), Operator: d.store, Watch: d.watch})
	o.OperatorToken = operators
	if change != nil {
		change(&o)
	}
	d.Pages = Handler(o)
	t.Cleanup(d.Close)
	return d
}

// park parks all pending messages; the one with the id 1 holds its key.
func park(t *testing.T, store *memstore.Store) {
	t.Helper()
	grants, err := store.Acquire(t.Context(), "r", storage.Lanes, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fences := map[int]int64{}
	var positions []storage.Position
	var renewals []storage.Renewal
	for _, grant := range grants {
		fences[grant.Lane] = grant.Fence
		positions = append(positions, storage.Position{Lane: grant.Lane})
		renewals = append(renewals, storage.Renewal{Lease: grant.Lease})
	}
	page, err := store.Read(t.Context(), storage.ReadRequest{Positions: positions, Limit: 1 << 20, MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	var settlements []storage.Settlement
	for _, row := range page.Rows {
		failed := storage.Attempt{At: time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC), Relay: "r", Sink: "main", Answer: fmt.Sprint("invalid: account 4711", row.ID, " is closed"), DurationMS: 12}
		settlements = append(settlements, storage.Settlement{
			Failed: []storage.Attempt{failed},
			ID:     row.ID, Lane: row.Lane, MessageID: row.Message.ID, Fence: fences[row.Lane],
			State: storage.StateError, Holds: row.ID == 1, Attempts: 1, Error: fmt.Sprint("invalid: account 4711", row.ID, " is closed"),
		})
	}
	if _, err := store.Settle(t.Context(), "r", true, settlements); err != nil {
		t.Fatal(err)
	}
	if err := store.Release(t.Context(), "r", renewals); err != nil {
		t.Fatal(err)
	}
}

// seeker is an Operator whose search ends before it has read all rows.
type seeker struct {
	storage.Operator
	patience time.Duration
}

func (s *seeker) Find(ctx context.Context, filter storage.Filter, patience time.Duration) (storage.Found, error) {
	s.patience = patience
	found, err := s.Operator.Find(ctx, filter, patience)
	found.Until, found.Last = 7, 9
	return found, err
}

// If a search for a message's id doesn't reach the last row, the answer has the row id that the search reached.
func TestFindingInALargeTable(t *testing.T) {
	t.Parallel()
	const absent = "0197a3b4-0000-7abc-8def-0123456789ab"
	s := &seeker{}
	d := newDesk(t, 1, func(o *Options) {
		s.Operator, o.Sources[0].Operator = o.Sources[0].Operator, s
		o.Sources[0].Write = func(context.Context, outbox.Message) error { return nil }
	})
	for path, want := range map[string]string{
		"/api/messages?id=1":         `"looked_until":7`,
		"/api/messages?id=" + absent: `"messages":[],"looked_until":7`,
		"/api/messages/1":            `"looked_until":7`,
		"/api/messages/" + absent:    "in the rows up to id 7 of 9",
	} {
		if got := d.ask("GET", path, "", "Authorization", "Bearer "+operators).Body.String(); !strings.Contains(got, want) || s.patience > time.Second {
			t.Errorf("%s: %s, want %s in it; the search had a time limit of %v", path, got, want, s.patience)
		}
	}
	if d.ask("GET", "/api/messages?all=yes&id=1", "", "Authorization", "Bearer "+operators); s.patience != countTimeout {
		t.Errorf("with all=yes the search had a time limit of %v", s.patience)
	}
	copied := d.asOperator("POST", "/api/messages", `{"copy_of":"`+absent+`","payload":""}`)
	if copied.Code != http.StatusNotFound || !strings.Contains(copied.Body.String(), "in the rows up to id 7 of 9") {
		t.Errorf("a copy of it: %d %s", copied.Code, copied.Body)
	}
}

// ask sends a request, with a JSON body unless the third argument is empty. Headers are given as pairs.
func (d *desk) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "http://127.0.0.1:8321"+path, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], strings.Replace(headers[i+1], testCookie+"=", d.api.guard.cookieName+"=", 1))
	}
	answer := httptest.NewRecorder()
	d.ServeHTTP(answer, request)
	return answer
}

func (d *desk) asOperator(method, path, body string) *httptest.ResponseRecorder {
	return d.ask(method, path, body, "Authorization", "Bearer "+operators)
}

// read reads an answer as JSON.
func read[T any](t *testing.T, answer *httptest.ResponseRecorder) (value T) {
	t.Helper()
	if err := json.Unmarshal(answer.Body.Bytes(), &value); err != nil {
		t.Fatalf("%v in %d %s", err, answer.Code, answer.Body)
	}
	return value
}

var reads = []string{"/api/overview", "/api/history", "/api/messages", "/api/messages/1", "/api/keys?key=k0", "/api/actions", "/api/replays", "/api/jobs", "/status", "/metrics"}

var changes = map[string]string{
	"/api/messages":       `{"copy_of":"1","payload":"another"}`,
	"/api/jobs":           `{"action":"discard","all":true,"select":{}}`,
	"/api/jobs/1/stop":    `{}`,
	"/api/replays/x/stop": `{}`,
	"/api/controls":       `{"kind":"sink","name":"main"}`,
	"/api/controls/lift":  `{"kind":"sink","name":"main"}`,
}

// Changes require the operator's token. Reading requires the reader's token if one is set.
func TestRoles(t *testing.T) {
	t.Parallel()
	both := func(o *Options) { o.ReaderToken = readers }
	for name, test := range map[string]struct {
		options func(*Options)
		headers []string
		read    int
		change  int // the status of a refused change; 0 if the change is permitted
	}{
		"nobody":                          {both, nil, 401, 401},
		"nobody, reading is free":         {nil, nil, 200, 403},
		"a reader":                        {both, []string{"Authorization", "Bearer " + readers}, 200, 403},
		"an operator":                     {both, []string{"Authorization", "Bearer " + operators}, 200, 0},
		"an operator, reading is free":    {nil, []string{"Authorization", "Bearer " + operators}, 200, 0},
		"a wrong token":                   {both, []string{"Authorization", "Bearer " + operators + "x"}, 401, 401},
		"a token's beginning":             {both, []string{"Authorization", "Bearer " + operators[:8]}, 401, 401},
		"no token":                        {both, []string{"Authorization", "Bearer "}, 401, 401},
		"another scheme":                  {both, []string{"Authorization", "Basic " + operators}, 401, 401},
		"the token as a cookie":           {both, []string{"Cookie", testCookie + "=" + operators}, 401, 401},
		"a cookie of nobody":              {both, []string{"Cookie", testCookie + "=operator.9999999999.N.00"}, 401, 401},
		"a reader's cookie as operator's": {both, []string{"Cookie", testCookie + "=" + strings.Replace(cookieValue(reader, readers, 9999999999, "N"), "reader", "operator", 1)}, 401, 401},
		"a cookie that has ended":         {both, []string{"Cookie", testCookie + "=" + cookieValue(operator, operators, 1, "N")}, 401, 401},
		"an operator's cookie":            {both, []string{"Cookie", testCookie + "=" + cookieValue(operator, operators, 9999999999, "N")}, 200, 0},
		"without an operator's token":     {func(o *Options) { o.OperatorToken = "" }, []string{"Authorization", "Bearer "}, 200, 403},
		"another site's page":             {nil, []string{"Cookie", testCookie + "=" + cookieValue(operator, operators, 9999999999, "N"), "Sec-Fetch-Site", "cross-site"}, 200, 403},
		"an old browser's other page":     {nil, []string{"Cookie", testCookie + "=" + cookieValue(operator, operators, 9999999999, "N"), "Origin", "http://evil.example"}, 200, 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // on a simulated clock, because the answer to a wrong token takes a second
				d := newDesk(t, 1, test.options)
				for _, path := range reads {
					if answer := d.ask("GET", path, "", test.headers...); answer.Code != test.read {
						t.Errorf("GET %s got %d %s, want %d", path, answer.Code, answer.Body, test.read)
					}
				}
				for _, path := range []string{"/healthz", "/readyz", "/", "/page.js", "/page.css"} {
					if answer := d.ask("GET", path, "", test.headers...); answer.Code != 200 {
						t.Errorf("GET %s got %d, want 200 for every client", path, answer.Code)
					}
				}
				for path, body := range changes {
					answer := d.ask("POST", path, body, test.headers...)
					if test.change == 0 && (answer.Code == 401 || answer.Code == 403) || test.change != 0 && answer.Code != test.change {
						t.Errorf("POST %s got %d %s, want %d", path, answer.Code, answer.Body, test.change)
					}
				}
				left, err := d.store.List(t.Context(), storage.Filter{})
				if want := map[bool]int{true: 0, false: 1}[test.change == 0]; err != nil || len(left) != want && left[0].Holds != storage.WantDiscard {
					t.Errorf("%d messages are left, %v", len(left), err)
				}
				actions, err := d.store.Actions(t.Context(), 10)
				if test.change != 0 && (err != nil || len(actions) != 0) {
					t.Errorf("a refused request made changes: %v, %v", actions, err)
				}
			})
		})
	}
}

// Readers can't use any POST route.
func TestPostRoutesRequireTheOperator(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, func(o *Options) { o.ReaderToken = readers })
	for _, path := range slices.Concat(reads, []string{"/", "/readyz", "/healthz", "/api/", "/api/session", "/api/nothing"}) {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
			if answer := d.ask(method, path, "{}", "Authorization", "Bearer "+readers); answer.Code < 400 {
				t.Errorf("%s %s got %d", method, path, answer.Code)
			}
		}
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, func(o *Options) { o.ReaderToken = readers })
	if answer := d.ask("POST", "/api/login", `{"token":"wrong"}`); answer.Code != 401 || len(answer.Result().Cookies()) != 0 {
		t.Errorf("a wrong token got %d, %v", answer.Code, answer.Result().Cookies())
	}
	for token, role := range map[string]string{readers: "reader", operators: "operator"} {
		answer := d.ask("POST", "/api/login", `{"token":"`+token+`"}`)
		cookies := answer.Result().Cookies()
		if answer.Code != 200 || len(cookies) != 1 {
			t.Fatalf("got %d %s", answer.Code, answer.Body)
		}
		if c := cookies[0]; !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 12*60*60 || strings.Contains(c.Value, token) || c.Secure {
			t.Errorf("the cookie is %v", c)
		}
		session := read[map[string]any](t, d.ask("GET", "/api/session", "", "Cookie", cookies[0].Name+"="+cookies[0].Value))
		if session["role"] != role || session["logged_in"] != true {
			t.Errorf("the session is %v, want the role %s", session, role)
		}
		behindTLS := d.ask("POST", "/api/login", `{"token":"`+token+`"}`, "X-Forwarded-Proto", "https")
		if !behindTLS.Result().Cookies()[0].Secure {
			t.Error("with TLS the cookie isn't Secure")
		}
	}
	if session := read[map[string]any](t, d.ask("GET", "/api/session", "")); session["role"] != "nobody" || len(session["sources"].([]any)) != 0 {
		t.Errorf("the session without a login is %v", session)
	}
}

// The security headers forbid the page to load anything from other servers, and the page doesn't try.
func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, nil)
	policy := d.ask("GET", "/", "").Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %s, want %s", policy, want)
		}
	}
	for _, content := range [][]byte{indexHTML, pageCSS, pageJS} {
		for _, never := range []string{"https://", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "@import", " style=\"", "onclick=\""} {
			if strings.Contains(string(content), never) {
				t.Errorf("the page contains %q", never)
			}
		}
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path, body string
		code               int
		want               string
	}{
		"no JSON":            {"POST", "/api/jobs", `hello`, 400, "the body is invalid"},
		"unknown field":      {"POST", "/api/jobs", `{"action":"requeue","everything":true}`, 400, "unknown field"},
		"two values":         {"POST", "/api/jobs", `{} {}`, 400, "more than one value"},
		"too long":           {"POST", "/api/jobs", `{"reason":"` + strings.Repeat("x", mostBody) + `"}`, 400, "too large"},
		"no selection":       {"POST", "/api/jobs", `{"action":"requeue","select":{}}`, 400, "select messages by ids or filters"},
		"all and a filter":   {"POST", "/api/jobs", `{"action":"requeue","all":true,"select":{"topic":"t"}}`, 400, "select messages by ids or filters"},
		"retries in order":   {"POST", "/api/jobs", `{"action":"requeue","in_order":true,"select":{"state":"retry"}}`, 400, "can't be given for messages in the state retry"},
		"another state":      {"POST", "/api/jobs", `{"action":"requeue","select":{"state":"done"}}`, 400, "only messages in the states"},
		"no such state":      {"POST", "/api/jobs", `{"action":"requeue","select":{"state":"gone"}}`, 400, "isn't one of pending"},
		"no id":              {"POST", "/api/jobs", `{"action":"requeue","select":{"ids":["x"]}}`, 400, "isn't an id"},
		"no action":          {"POST", "/api/jobs", `{"action":"purge","all":true,"select":{}}`, 400, "isn't an action"},
		"no sink":            {"POST", "/api/jobs", `{"action":"requeue","all":true,"select":{},"to":"nowhere"}`, 400, "there is no sink"},
		"skip to a sink":     {"POST", "/api/jobs", `{"action":"skip","all":true,"select":{},"to":"main"}`, 400, "can be given only for requeue"},
		"a replay of parked": {"POST", "/api/jobs", `{"action":"replay","select":{"state":"error"}}`, 400, "delivered messages"},
		"no replay":          {"POST", "/api/jobs", `{"action":"replay","name":"unknown","select":{}}`, 400, "the replay doesn't exist"},
		"no job":             {"POST", "/api/jobs/7/stop", `{}`, 404, "the job doesn't exist"},
		"no control":         {"POST", "/api/controls", `{"kind":"planet","name":"x"}`, 400, "invalid kind of control"},
		"no limit":           {"POST", "/api/controls", `{"kind":"limit","name":"main"}`, 400, "at least 1"},
		"no duration":        {"POST", "/api/controls", `{"kind":"sink","name":"main","for":"a while"}`, 400, "isn't a duration"},
		"not in force":       {"POST", "/api/controls/lift", `{"kind":"sink","name":"main"}`, 404, "neither paused nor limited"},
		"no source":          {"GET", "/api/overview?source=b", "", 404, "there is no source"},
		"no message":         {"GET", "/api/messages/99", "", 404, "message 99 doesn't exist"},
		"no message's id":    {"GET", "/api/messages/x", "", 400, "isn't an id"},
		"limit":              {"GET", "/api/messages?limit=501", "", 400, "from 1 to 500"},
		"since":              {"GET", "/api/messages?since=yesterday", "", 400, "since: "},
		"nothing":            {"GET", "/api/nothing", "", 404, "no such route"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 1, nil)
			answer := d.asOperator(test.method, test.path, test.body)
			if got := read[map[string]string](t, answer); answer.Code != test.code || !strings.Contains(got["error"], test.want) {
				t.Errorf("got %d %v, want %d %s", answer.Code, got, test.code, test.want)
			}
		})
	}
	form := newDesk(t, 1, nil).ask("POST", "/api/jobs", `{"action":"discard","all":true}`, "Authorization", "Bearer "+operators, "Content-Type", "text/plain")
	if form.Code != http.StatusUnsupportedMediaType {
		t.Errorf("a body with the type text/plain got %d, want 415", form.Code)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 5, nil)
	d.db.Write(outbox.Message{Topic: "u", Key: "x", Payload: []byte{0xff, 0}})
	type listing struct {
		Messages []map[string]any `json:"messages"`
		Next     int64            `json:"next"`
	}
	for query, want := range map[string]struct{ count, next int64 }{
		"":                       {6, 0},
		"limit=2":                {2, 2},
		"limit=2&after=4":        {2, 6},
		"state=error":            {5, 0},
		"topic=u":                {1, 0},
		"key=k3":                 {1, 0},
		"error=47113%20is":       {1, 0},
		"id=2&id=3":              {2, 0},
		"state=error&topic=u":    {0, 0},
		"since=1h&state=pending": {1, 0},
	} {
		got := read[listing](t, d.ask("GET", "/api/messages?"+query, ""))
		if int64(len(got.Messages)) != want.count || got.Next != want.next {
			t.Errorf("%s: %d messages and next %d, want %v", query, len(got.Messages), got.Next, want)
		}
		for _, m := range got.Messages {
			if m["payload"] != nil || m["headers"] != nil {
				t.Errorf("%s: a list has the message %v, want no payload and headers", query, m)
			}
		}
	}
	d.watch.Attempted(relay.Attempt{At: time.Now(), Sink: "main", ID: 2, MessageID: "another", Number: 1, Reason: sinks.ReasonBusy})
	first := read[[]shownMessage](t, d.ask("GET", "/api/messages/2", ""))[0]
	if len(first.Attempted) != 0 || *first.Payload != "payload 1" || first.Headers["tenant"] != "acme" || first.PayloadBytes != 9 {
		t.Errorf("got %+v", first)
	}
	d.watch.Attempted(relay.Attempt{At: time.Now(), Sink: "main", ID: 2, MessageID: first.MessageID, Number: 3, Reason: sinks.ReasonInvalid, Detail: "no", Became: "is parked"})
	again := read[[]shownMessage](t, d.ask("GET", "/api/messages/2?payload=no", ""))[0]
	if len(again.Attempted) != 1 || again.Attempted[0].Number != 3 || again.Payload != nil || !again.PayloadHidden {
		t.Errorf("got %+v", again)
	}
	if bytes := read[[]shownMessage](t, d.ask("GET", "/api/messages/6", ""))[0]; !slices.Equal(bytes.PayloadBase64, []byte{0xff, 0}) {
		t.Errorf("got %+v", bytes)
	}
	hidden := newDesk(t, 1, func(o *Options) { o.HidePayloads = true })
	if text := hidden.ask("GET", "/api/messages/1", "").Body.String(); strings.Contains(text, "payload 0") {
		t.Errorf("a hidden payload is shown: %s", text)
	}
}

// If messages are large, a page of the list has fewer of them, and the next page begins with the next message. So the database
// reads no payload that isn't shown.
func TestListsOfLargeMessages(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, nil)
	for range 20 {
		d.db.Write(outbox.Message{Topic: "large", Payload: make([]byte, 1<<20)})
	}
	park(t, d.store)
	type listing struct {
		Messages []struct{ ID int64 }
		Next     int64
	}
	var seen []int64
	pages := 0
	for after := int64(0); ; pages++ {
		got := read[listing](t, d.ask("GET", fmt.Sprint("/api/messages?after=", after), ""))
		for _, m := range got.Messages {
			seen = append(seen, m.ID)
		}
		if after = got.Next; after == 0 {
			break
		}
	}
	if len(seen) != 20 || !slices.IsSorted(seen) || pages != 2 {
		t.Errorf("%d messages were listed, on %d full pages and a last one", len(seen), pages)
	}
	got := read[struct{ Parked []parkedGroup }](t, d.ask("GET", "/api/overview", ""))
	if len(got.Parked) != 1 || got.Parked[0].Of != 0 || got.Parked[0].Count != 20 {
		t.Errorf("parked: %+v, want all of them", got.Parked)
	}
}

// Jobs make the same changes as the command line, and the log of actions has their authors.
func TestJobs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		request     string
		total, done int
		parked      int // messages that stay parked
		state       string
		log         string
	}{
		"requeue one":         {`{"action":"requeue","select":{"ids":["2"]},"by":"ann","reason":"tried"}`, 1, 1, 9, jobDone, "requeue ids=2 1 ann from 192.0.2.1 tried"},
		"requeue by a filter": {`{"action":"requeue","select":{"topic":"t","error":"47113 is"}}`, 1, 1, 9, jobDone, "requeue topic=t error=47113 is 1 admin from 192.0.2.1 "},
		"requeue all":         {`{"action":"requeue","all":true,"select":{}}`, 10, 10, 0, jobDone, "requeue all 10 admin from 192.0.2.1 "},
		"a preview":           {`{"action":"requeue","all":true,"select":{},"preview":true}`, 10, 0, 10, jobDone, ""},
		"redirect":            {`{"action":"requeue","all":true,"select":{},"to":"other"}`, 9, 9, 1, jobDone, "redirect all 9 admin from 192.0.2.1 "},
		"skip":                {`{"action":"skip","all":true,"select":{}}`, 1, 1, 9, jobDone, "skip all 1 admin from 192.0.2.1 "},
		"discard":             {`{"action":"discard","select":{"topic":"t"}}`, 10, 10, 0, jobDone, "discard topic=t 10 admin from 192.0.2.1 "},
		"nothing":             {`{"action":"discard","select":{"topic":"u"}}`, 0, 0, 10, jobDone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 10, nil)
			got := read[job](t, d.asOperator("POST", "/api/jobs", test.request))
			if got.State != test.state || got.Total != test.total || got.Done != test.done {
				t.Errorf("the job is %+v", got)
			}
			status, err := d.store.Status(t.Context())
			if err != nil || status.Counts[storage.StateError] != int64(test.parked) {
				t.Errorf("%d are parked, %v, want %d", status.Counts[storage.StateError], err, test.parked)
			}
			log := ""
			actions, err := d.store.Actions(t.Context(), 10)
			if err != nil || len(actions) > 1 {
				t.Fatal(actions, err)
			}
			for _, a := range actions {
				log = fmt.Sprintf("%s %s %d %s %s", a.Action, a.Target, a.Changed, a.By, a.Reason)
			}
			if log != test.log {
				t.Errorf("the log has %q, want %q", log, test.log)
			}
		})
	}
}

// A job with a rate shows its progress. After the job was stopped, another job with the same plan changes the remaining
// messages.
func TestStoppedJobContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1000, nil)
		const request = `{"action":"requeue","select":{"topic":"t"},"rate":100}`
		began := read[job](t, d.asOperator("POST", "/api/jobs", request))
		if got := began; got.State != jobRuns || got.Total != 1000 || got.Done != 200 && got.Done != 300 {
			t.Errorf("after two seconds the job is %+v", got)
		}
		time.Sleep(2500 * time.Millisecond)
		got := read[job](t, d.asOperator("POST", "/api/jobs/"+began.ID+"/stop", `{}`))
		if got.State != jobStopped || got.Done != 500 || got.Ended.IsZero() {
			t.Errorf("the stopped job is %+v", got)
		}
		rest := read[job](t, d.asOperator("POST", "/api/jobs", `{"plan":"`+began.ID+`","rate":100}`))
		time.Sleep(time.Minute)
		if got := read[job](t, d.ask("GET", "/api/jobs/"+rest.ID, "")); got.State != jobDone || got.Total != 500 || got.Done != 500 {
			t.Errorf("the job that continues is %+v", got)
		}
		// A running job stops when the server stops.
		d.asOperator("POST", "/api/jobs", `{"action":"replay","all":true,"select":{},"name":"again"}`)
		d.Close()
		if answer := d.asOperator("POST", "/api/jobs", request); answer.Code != http.StatusTooManyRequests {
			t.Errorf("a request for a job on a stopped server got %d", answer.Code)
		}
	})
}

func TestControls(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, nil)
	for _, body := range []string{`{"kind":"sink","name":"main","for":"2h","by":"ann","reason":"down"}`, `{"kind":"limit","name":"other","rate":5}`, `{"kind":"key","name":"k"}`} {
		if answer := d.asOperator("POST", "/api/controls", body); answer.Code != 200 {
			t.Fatalf("got %d %s", answer.Code, answer.Body)
		}
	}
	type overview struct {
		Sinks    []sinkReport
		Problems []problem
		Status   Report
	}
	got := read[overview](t, d.ask("GET", "/api/overview", ""))
	if len(got.Status.Controls) != 3 || got.Sinks[0].Paused == nil || got.Sinks[0].Paused.By != "ann from 192.0.2.1" || got.Sinks[1].Limit == nil || got.Sinks[1].Limit.Rate != 5 {
		t.Errorf("got %+v", got)
	}
	if answer := d.asOperator("POST", "/api/controls/lift", `{"kind":"sink","name":"main"}`); answer.Code != 200 {
		t.Errorf("got %d %s", answer.Code, answer.Body)
	}
	if got := read[overview](t, d.ask("GET", "/api/overview", "")); got.Sinks[0].Paused != nil || len(got.Status.Controls) != 2 {
		t.Errorf("got %+v", got)
	}
}

// The status has the state of each sink, also if the table couldn't be counted.
func TestStatusOfSinks(t *testing.T) {
	t.Parallel()
	for code, counting := range map[int]error{200: nil, 503: errors.New("the database is gone")} {
		d := newDesk(t, 0, func(o *Options) {
			o.Sources[0].Status = func(context.Context) (storage.Status, error) { return storage.Status{}, counting }
		})
		d.watch.SinkDown("main", sinks.ReasonConnection, "refused")
		answer := d.ask("GET", "/status", "")
		got := read[struct {
			Sources []struct{ Sinks []sinkReport }
		}](t, answer)
		if answer.Code != code || len(got.Sources) != 1 || len(got.Sources[0].Sinks) != 2 {
			t.Fatalf("got %d %+v, want %d and two sinks", answer.Code, got, code)
		}
		main, other := got.Sources[0].Sinks[0], got.Sources[0].Sinks[1]
		if !main.Down || main.Reason != string(sinks.ReasonConnection) || main.Detail != "refused" || other.Down {
			t.Errorf("got %+v and %+v, want main down because of its connection, and other not", main, other)
		}
	}
}

// Problems are sorted by severity, and late messages have their probable causes.
func TestProblems(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 3, func(o *Options) {
		counting := o.Sources[0].Status
		o.Sources[0].Healthy = func() error { return errors.New("the database has not answered for 20s") }
		o.Sources[0].Status = func(ctx context.Context) (storage.Status, error) {
			status, err := counting(ctx)
			status.OldestPending, status.Counts[storage.StatePending] = 90*time.Second, 12
			status.HeldKeys, status.OldestHeld = 1, time.Hour
			status.Relays = []storage.RelayInfo{{Name: "r1", Host: "h", Alive: false, LastHeartbeat: time.Now().Add(-time.Minute)}}
			status.Controls = []storage.Control{{Kind: storage.PauseTopic, Name: "news", By: "ann", Since: time.Now()}}
			return status, err
		}
	})
	d.watch.SinkDown("main", sinks.ReasonConnection, "refused")
	d.watch.Unrouted("stray")
	d.watch.Failed("settle", errors.New("deadlock"))
	got := read[struct{ Problems []problem }](t, d.ask("GET", "/api/overview", "")).Problems
	var lines []string
	for _, p := range got {
		lines = append(lines, p.Level+" "+p.Title+" | "+p.Detail)
	}
	for i, want := range []string{
		"bad The relay of this process doesn't work | the database has not answered for 20s",
		"bad The sink main has been unavailable for a moment | connection: refused",
		"bad Messages of the topic stray have no destination | ",
		"bad No relay is alive | ",
		"warn The relay retries a failing operation: settle | deadlock",
		"warn The relay r1 is dead | It ran on ",
		"warn The topic news is paused | for a moment, by ann",
		"warn 1 key is blocked by a parked message | The oldest one has been blocked for 1 h 0 min.",
		"warn Messages are late: the oldest has waited for 1 min | Probable cause: sink main is unavailable; topic stray has no destination; no relay is alive; topic news is paused. The backlog is 12 messages.",
		"warn 3 messages of t parked | invalid: account 4711",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("problem %d isn't %q in\n%s", i, want, strings.Join(lines, "\n"))
		}
	}
	if len(got) == 10 && got[9].Select["error"] != "invalid: account" {
		t.Errorf("the filter for the group of parked messages is %v", got[9].Select)
	}
}

// If the table of relays could not be read in time, the page doesn't report that no relay is alive.
func TestAbsentRelaysAreNoProblem(t *testing.T) {
	t.Parallel()
	for absent, want := range map[storage.Gauge]bool{storage.GaugeRelays: false, storage.GaugeCounts: true} {
		d := newDesk(t, 0, func(o *Options) {
			counting := o.Sources[0].Status
			o.Sources[0].Status = func(ctx context.Context) (storage.Status, error) {
				status, err := counting(ctx)
				status.Relays, status.Absent = nil, []storage.Gauge{absent}
				return status, err
			}
		})
		got := false
		for _, p := range read[struct{ Problems []problem }](t, d.ask("GET", "/api/overview", "")).Problems {
			got = got || p.Title == "No relay is alive"
		}
		if got != want {
			t.Errorf("without %s the page says that no relay is alive: %v, want %v", absent, got, want)
		}
	}
}

// A Watch makes a point every ten seconds, and keeps the points of six hours.
func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 2, nil)
		begin := time.Now()
		d.ask("GET", "/api/overview", "") // counts the table
		for range 7 * 60 * 60 {
			time.Sleep(time.Second)
			d.watch.Delivered("main", "t", 100*time.Millisecond)
			d.watch.Delivered("main", "t", 300*time.Millisecond)
			d.watch.InMemory("main", 1, 2)
		}
		points := read[[]Point](t, d.ask("GET", "/api/history", ""))
		if len(points) != mostPoints || !points[0].At.Equal(begin.Add(time.Hour+10*time.Second)) {
			t.Fatalf("%d points, the first at %v", len(points), points[0].At.Sub(begin))
		}
		last := points[len(points)-1]
		if last.Delivered != 20 || last.Seconds != 10 || last.Lag != 0.2 || last.MostLag != 0.3 || last.Error != 2 || last.Pending != 0 {
			t.Errorf("the last point is %+v", last)
		}
	})
}

// A point has no counts if the last count of the table failed or took too long. The chart shows a gap, not a backlog of 0.
func TestHistoryHasNoUnknownCounts(t *testing.T) {
	t.Parallel()
	counts := map[storage.State]int64{storage.StatePending: 7, storage.StateError: 3}
	for name, test := range map[string]struct {
		status              storage.Status
		err                 error
		pending, parkedRows int64
	}{
		"counted":            {storage.Status{Counts: counts}, nil, 7, 3},
		"other gauge absent": {storage.Status{Counts: counts, Absent: []storage.Gauge{storage.GaugeRelays}}, nil, 7, 3},
		"took too long":      {storage.Status{Absent: []storage.Gauge{storage.GaugeCounts}}, nil, -1, -1},
		"failed":             {storage.Status{Counts: counts}, errors.New("no connection"), -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := NewWatch(nil, "main")
				_, err := w.Counting(func(context.Context) (storage.Status, error) { return test.status, test.err })(t.Context())
				if !errors.Is(err, test.err) {
					t.Fatal(err)
				}
				time.Sleep(pointEvery)
				w.InMemory("main", 0, 0)
				points := w.History()
				if len(points) != 1 || points[0].Pending != test.pending || points[0].Error != test.parkedRows {
					t.Errorf("the points are %+v", points)
				}
			})
		})
	}
}

// A Watch stores failed attempts of a limited number of messages, and a limited number of attempts for each message.
func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	w := NewWatch(nil)
	for id := range int64(mostMessages + 10) {
		for n := range mostAttempts + 5 {
			w.Attempted(relay.Attempt{ID: id, MessageID: "m", Number: n})
		}
	}
	if w.attemptsOf(9, "m") != nil || len(w.attempts) != mostMessages {
		t.Errorf("the Watch has attempts of %d messages", len(w.attempts))
	}
	if got := w.attemptsOf(10, "m"); len(got) != mostAttempts || got[0].Number != 5 {
		t.Errorf("%d attempts, the first is %d", len(got), got[0].Number)
	}
}

// An open page causes few counts of the table.
func TestOpenPageCountsRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counts := 0
		d := newDesk(t, 0, func(o *Options) {
			counting := o.Sources[0].Status
			o.Sources[0].Status = func(ctx context.Context) (storage.Status, error) {
				counts++
				time.Sleep(time.Second)
				return counting(ctx)
			}
		})
		for range 600 {
			d.ask("GET", "/api/overview", "")
			time.Sleep(time.Second)
		}
		if counts < 25 || counts > 31 {
			t.Errorf("the table was counted %d times in ten minutes: with a second per count, counting must take at most 5 %% of the time", counts)
		}
	})
}

// Without a reader's token, requests are refused if their Host isn't one of this server's names or an IP address.
func TestForeignHostNamesAreRefused(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		reader, host, path string
		hosts              []string
		code               int
	}{
		"by address":                 {"", "127.0.0.1:1", "/", nil, 200},
		"by another address":         {"", "10.0.0.7", "/", nil, 200},
		"by name":                    {"", "localhost:1", "/", nil, 200},
		"below localhost":            {"", "relay.localhost.", "/", nil, 200},
		"by this machine's name":     {"", strings.ToUpper(machine) + ":1", "/", nil, 200},
		"IPv6":                       {"", "[::1]:1", "/", nil, 200},
		"another site's name":        {"", "evil.example:1", "/", nil, 421},
		"another site's name, API":   {"", "evil.example", "/api/messages", nil, 421},
		"a name that it is given":    {"", "relay.example:8321", "/", []string{"relay.example"}, 200},
		"a probe by any name":        {"", "relay.default.svc", "/readyz", nil, 200},
		"metrics by any name":        {"", "relay.default.svc", "/metrics", nil, 200},
		"another name, with a login": {readers, "relay.example", "/", nil, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 0, func(o *Options) { o.ReaderToken, o.Hosts = test.reader, test.hosts })
			request := httptest.NewRequest("GET", test.path, nil)
			request.Host = test.host
			if test.reader != "" {
				request.Header.Set("Authorization", "Bearer "+test.reader)
			}
			answer := httptest.NewRecorder()
			d.ServeHTTP(answer, request)
			if answer.Code != test.code {
				t.Errorf("got %d %s, want %d", answer.Code, answer.Body, test.code)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		address, reader, operator, cert string
		want                            []string
	}{
		"loopback":           {"127.0.0.1:1", "", operators, "", nil},
		"beyond":             {"0.0.0.0:1", "", "", "", []string{"everybody who can reach"}},
		"beyond, operators":  {"0.0.0.0:1", "", operators, "", []string{"everybody who can reach", "without encryption"}},
		"beyond, with login": {"10.0.0.1:1", readers, "", "", []string{"without encryption"}},
		"beyond, with both":  {"[::]:1", readers, operators, "cert.pem", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			warn(Options{ReaderToken: test.reader, OperatorToken: test.operator, CertFile: test.cert, Logger: slog.New(slog.NewTextHandler(&text, nil))}, test.address)
			if strings.Count(text.String(), "level=WARN") != len(test.want) {
				t.Errorf("warned of\n%s, want %q", &text, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("warned of\n%s, want %q", &text, test.want)
				}
			}
		})
	}
}

// The server uses TLS, and reads a new certificate without a restart.
func TestTLS(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	o := options(works("a"))
	o.CertFile, o.KeyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	if _, err := Start(o); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without a certificate: %v", err)
	}
	certify(t, o, "first", time.Now().Add(-time.Hour))
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for _, name := range []string{"first", "second"} {
		certify(t, o, name, map[string]time.Time{"first": time.Now().Add(-time.Hour), "second": time.Now()}[name])
		conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{InsecureSkipVerify: true}) // the name is checked below
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; got != name {
			t.Errorf("the certificate is %s, want %s", got, name)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get("https://" + s.Addr() + "/healthz")
	if err != nil || answer.StatusCode != 200 {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
}

// certify writes a certificate and its key to files with this modification time.
func certify(t *testing.T, o Options, name string, at time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		os.WriteFile(o.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600),
		os.WriteFile(o.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600),
		os.Chtimes(o.CertFile, at, at),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// A job with a plan changes exactly the messages of the preview. A request is refused if the plan was dropped or has been
// carried out.
func TestAPlanIsCarriedOut(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 3, nil)
	preview := read[job](t, d.asOperator("POST", "/api/jobs", `{"action":"discard","select":{"topic":"t"},"preview":true}`))
	for i := range 50 {
		d.db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint("later ", i)})
	}
	park(t, d.store)
	for request, code := range map[string]int{
		`{"plan":"` + preview.ID + `","action":"discard"}`:     400,
		`{"plan":"` + preview.ID + `","all":true}`:             400,
		`{"plan":"` + preview.ID + `","select":{"topic":"t"}}`: 400,
		`{"plan":"` + preview.ID + `","preview":true}`:         400,
		`{"plan":"` + preview.ID + `","rate":-1}`:              400,
		`{"plan":"99"}`: 409,
	} {
		if answer := d.asOperator("POST", "/api/jobs", request); answer.Code != code {
			t.Errorf("%s got %d %s, want %d", request, answer.Code, answer.Body, code)
		}
	}
	got := read[job](t, d.asOperator("POST", "/api/jobs", `{"plan":"`+preview.ID+`","by":"ann","reason":"a test"}`))
	status, err := d.store.Status(t.Context())
	if err != nil || got.Total != 3 || got.Done != 3 || got.Request.Action != "discard" || status.Counts[storage.StateError] != 50 {
		t.Errorf("the job is %+v, and %d are parked, %v", got, status.Counts[storage.StateError], err)
	}
	if answer := d.asOperator("POST", "/api/jobs", `{"plan":"`+got.ID+`"}`); answer.Code != http.StatusConflict {
		t.Errorf("the plan of a finished job got %d, want 409", answer.Code)
	}
	for range mostPlans {
		d.asOperator("POST", "/api/jobs", `{"action":"discard","select":{"topic":"t"},"preview":true}`)
	}
	d.asOperator("POST", "/api/jobs", `{"action":"discard","select":{"topic":"t"},"preview":true}`)
	if answer := d.asOperator("POST", "/api/jobs", `{"plan":"`+preview.ID+`"}`); answer.Code != http.StatusConflict {
		t.Errorf("an old plan got %d, want 409", answer.Code)
	}
}
