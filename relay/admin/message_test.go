package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

func TestMessageHasItsFailedAttempts(t *testing.T) {
	t.Parallel()
	for hidden, want := range map[bool]string{false: "invalid: account 47112 is closed", true: "invalid: (hidden)"} {
		d := newDesk(t, 2, func(o *Options) { o.HidePayloads = hidden })
		log := read[[]shownMessage](t, d.ask("GET", "/api/messages/2", ""))[0].AttemptLog
		if len(log) != 1 || log[0].Answer != want || log[0].Relay != "r" || log[0].Sink != "main" || log[0].DurationMS != 12 {
			t.Errorf("with hidden payloads %v: %+v, want one attempt with the answer %q", hidden, log, want)
		}
	}
}

// A message with a valid traceparent has the URL of its trace. Other values of the header give no URL.
func TestTraceURL(t *testing.T) {
	t.Parallel()
	const id, template = "4bf92f3577b34da6a3ce929d0e0e4736", "https://jaeger.example/trace/{trace_id}?x={trace_id}"
	for name, test := range map[string]struct {
		template, header, value, want string
	}{
		"a trace":               {template, "traceparent", "00-" + id + "-00f067aa0ba902b7-01", "https://jaeger.example/trace/" + id + "?x=" + id},
		"another case":          {template, "Traceparent", "00-" + id + "-00f067aa0ba902b7-01", "https://jaeger.example/trace/" + id + "?x=" + id},
		"no template":           {"", "traceparent", "00-" + id + "-00f067aa0ba902b7-01", ""},
		"a script as template":  {"javascript:alert('{trace_id}')", "traceparent", "00-" + id + "-00f067aa0ba902b7-01", ""},
		"a hostile traceparent": {template, "traceparent", `00-"><script>alert(1)</script>-00f067aa0ba902b7-01`, ""},
		"another header":        {template, "x-traceparent", "00-" + id + "-00f067aa0ba902b7-01", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 0, func(o *Options) { o.TraceURL, o.HidePayloads = test.template, true })
			d.db.Write(outbox.Message{Topic: "t", Headers: map[string]string{test.header: test.value}})
			if got := read[[]shownMessage](t, d.ask("GET", "/api/messages/1", ""))[0].TraceURL; got != test.want {
				t.Errorf("the trace is %q, want %q", got, test.want)
			}
		})
	}
}

// follower is an Operator that lists the last delivered messages, as a sqlstore.Store does.
type follower struct{ storage.Operator }

func (follower) LastDelivered(_ context.Context, filter storage.Filter, since time.Time) (infos []storage.Info, err error) {
	for id := range int64(3) {
		info := storage.Info{State: storage.StateDone, FinishedAt: since.Add(time.Minute)}
		info.ID, info.Message.Topic, info.Message.Key = 90-id, "t", filter.Key
		infos = append(infos, info)
	}
	return infos, nil
}

// The timeline of a key has its delivered messages, its messages that are parked or wait for another attempt, and its waiting
// messages.
func TestKeyLine(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 3, func(o *Options) { o.Sources[0].Reads = follower{o.Sources[0].Operator} })
	hostile := `a/b?"<img src=x onerror=alert(1)>&ü`
	for range mostOfAKey + 5 {
		d.db.Write(outbox.Message{Topic: "t", Key: "k1"}, outbox.Message{Topic: "t", Key: hostile})
	}
	line := read[keyLine](t, d.ask("GET", "/api/keys?key=k1", ""))
	if len(line.Held) != 1 || line.Held[0].ID != 2 || line.MoreHeld || len(line.Waiting) != mostOfAKey || !line.MoreWaiting || line.LookedThrough != operate.LookThrough {
		t.Errorf("the line has %d held and %d waiting messages, %+v", len(line.Held), len(line.Waiting), line)
	}
	if len(line.Delivered) != 3 || line.Delivered[0].ID != 88 || time.Since(line.DeliveredSince).Round(time.Minute) != time.Hour {
		t.Errorf("delivered since %v: %+v, want three messages of the last hour in the order of ids", line.DeliveredSince, line.Delivered)
	}
	line = read[keyLine](t, d.ask("GET", "/api/keys?all=yes&since=2h&key="+url.QueryEscape(hostile), ""))
	if line.Key != hostile || len(line.Waiting) != mostOfAKey || line.LookedThrough != 0 || time.Since(line.DeliveredSince).Round(time.Minute) != 2*time.Hour {
		t.Errorf("the line of a hostile key: %+v", line)
	}
	for _, path := range []string{"/api/keys", "/api/keys?key=", "/api/keys?key=%ff", "/api/keys?key=k&since=x"} {
		if answer := d.ask("GET", path, ""); answer.Code != 400 {
			t.Errorf("%s got %d %s", path, answer.Code, answer.Body)
		}
	}
}

// A copy has the topic, key, headers and priority of the original message, another payload, and a header with the original's
// id.
func TestCopyAsNewMessage(t *testing.T) {
	t.Parallel()
	var written []outbox.Message
	d := newDesk(t, 1, func(o *Options) {
		o.Sources[0].Write = func(_ context.Context, m outbox.Message) error {
			if strings.Contains(string(m.Payload), "refuse") {
				return &outbox.ValidationError{Field: "Payload", Rule: "is too long"}
			}
			if strings.Contains(string(m.Payload), "break") {
				return errors.New("the connection broke")
			}
			written = append(written, m)
			return nil
		}
	})
	old := read[[]shownMessage](t, d.ask("GET", "/api/messages/1", ""))[0]
	if !old.Copyable {
		t.Error("the message isn't copyable although Source.Write is set")
	}
	made := read[map[string]string](t, d.asOperator("POST", "/api/messages", `{"copy_of":"1","payload":"{\"order\": 2} ü","by":"Ann","reason":"wrong amount"}`))
	if len(written) != 1 {
		t.Fatalf("%d messages were written, %v", len(written), made)
	}
	if m := written[0]; m.ID != made["message_id"] || m.ID == old.MessageID || m.Topic != "t" || m.Key != "k0" || string(m.Payload) != `{"order": 2} ü` || m.Headers["tenant"] != "acme" || m.Headers[storage.CopyOfHeader] != old.MessageID {
		t.Errorf("the copy is %+v, and the original %+v", m, old)
	}
	if d.asOperator("POST", "/api/messages", `{"copy_of":"`+old.MessageID+`","payload_base64":"/wA="}`); string(written[1].Payload) != "\xff\x00" {
		t.Errorf("the copy's payload is %q", written[1].Payload)
	}
	if d.asOperator("POST", "/api/messages", `{"copy_of":"1","payload":null}`); written[2].Payload != nil {
		t.Errorf("the copy's payload is %q, want none", written[2].Payload)
	}
	for body, code := range map[string]int{
		`{"copy_of":"99","payload":""}`:                                     404,
		`{"copy_of":"x","payload":""}`:                                      400,
		`{"copy_of":"1","payload":"refuse"}`:                                400,
		`{"copy_of":"1","payload":"break"}`:                                 500,
		`{"copy_of":"1","payload":"a","payload_base64":"YQ=="}`:             400,
		`{"copy_of":"1","topic":"elsewhere"}`:                               400,
		`{"copy_of":"1","payload":"` + strings.Repeat("x", mostCopy) + `"}`: 400,
	} {
		if answer := d.asOperator("POST", "/api/messages", body); answer.Code != code {
			t.Errorf("%.60s got %d %s, want %d", body, answer.Code, answer.Body, code)
		}
	}
	actions := read[[]storage.Action](t, d.ask("GET", "/api/actions", ""))
	logged := actions[len(actions)-1] // the oldest
	if want := fmt.Sprintf("message %s as %s", old.MessageID, made["message_id"]); logged.Action != "copy" || logged.Target != want || logged.Changed != 1 || !strings.HasPrefix(logged.By, "Ann from ") || logged.Reason != "wrong amount" {
		t.Errorf("the log has %+v, want a copy of %s", logged, want)
	}
	if answer := newDesk(t, 1, nil).asOperator("POST", "/api/messages", `{"copy_of":"1","payload":""}`); answer.Code != 400 {
		t.Errorf("without Source.Write a copy got %d", answer.Code)
	}
}

// The name in the UserHeader is used only if the request comes from a trusted proxy and has the header once.
func TestUserHeader(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, func(o *Options) {
		o.UserHeader = "X-Forwarded-User"
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	})
	for name, test := range map[string]struct {
		from    string
		names   []string
		session string // the user of the session
		author  string // the logged author of a change whose request has the name "Ann"
	}{
		"from the proxy":           {"10.1.2.3:4711", []string{" Bob Ü "}, "Bob Ü", "Bob Ü from 10.1.2.3"},
		"by IPv6":                  {"[::1]:4711", []string{"bob@example.com"}, "bob@example.com", "bob@example.com from ::1"},
		"by IPv4 in IPv6":          {"[::ffff:10.1.2.3]:4711", []string{"Bob"}, "Bob", "Bob from ::ffff:10.1.2.3"},
		"from elsewhere":           {"11.1.2.3:4711", []string{"Bob"}, "", "Ann from 11.1.2.3"},
		"no header":                {"10.1.2.3:4711", nil, "", "Ann from 10.1.2.3"},
		"twice, so perhaps forged": {"10.1.2.3:4711", []string{"Bob", "Eve"}, "", "Ann from 10.1.2.3"},
		"a control character":      {"10.1.2.3:4711", []string{"Bob\x07"}, "", "Ann from 10.1.2.3"},
		"too long":                 {"10.1.2.3:4711", []string{strings.Repeat("x", 151)}, "", "Ann from 10.1.2.3"},
		"not UTF-8":                {"10.1.2.3:4711", []string{"\xff"}, "", "Ann from 10.1.2.3"},
	} {
		send := func(method, path, body string, headers ...string) *httptest.ResponseRecorder {
			request := httptest.NewRequest(method, "http://127.0.0.1:8321"+path, strings.NewReader(body))
			request.RemoteAddr = test.from
			request.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(headers); i += 2 {
				request.Header.Set(headers[i], headers[i+1])
			}
			for _, each := range test.names {
				request.Header.Add("x-forwarded-user", each)
			}
			answer := httptest.NewRecorder()
			d.ServeHTTP(answer, request)
			return answer
		}
		if user := read[sessionAnswer](t, send("GET", "/api/session", "")).User; user != test.session {
			t.Errorf("%s: the session's user is %q, want %q", name, user, test.session)
		}
		if answer := send("POST", "/api/controls", `{"kind":"topic","name":"t","by":"Ann"}`); answer.Code < 400 {
			t.Errorf("%s: a change with the header, but without a token, got %d; want a refusal", name, answer.Code)
		}
		send("POST", "/api/controls", `{"kind":"topic","name":"t","by":"Ann"}`, "Authorization", "Bearer "+operators)
		if by := read[[]storage.Action](t, d.ask("GET", "/api/actions", ""))[0].By; by != test.author {
			t.Errorf("%s: the author is %q, want %q", name, by, test.author)
		}
	}
}

// The charts can show one sink.
func TestHistoryOfASink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 0, nil)
		for second := range 30 {
			time.Sleep(time.Second)
			d.watch.Delivered("main", "t", 100*time.Millisecond)
			if second >= 20 {
				d.watch.Delivered("other", "t", time.Second)
				d.watch.Parked("other", sinks.ReasonInvalid)
			}
			d.watch.InMemory("main", 1, 2)
		}
		other := NewWatch(nil, "other", "new")
		other.Continue(d.watch)
		for name, points := range map[string][]Point{
			"served":    read[[]Point](t, d.ask("GET", "/api/history?sink=other", "")),
			"continued": other.HistoryOf("other"),
		} {
			if len(points) != 3 || points[1].Delivered != 0 || points[2].Delivered != 10 || points[2].Parked != 10 || points[2].Lag != 1 || points[2].MostLag != 1 || points[2].Pending != -1 {
				t.Errorf("%s: the points of the sink are %+v", name, points)
			}
		}
		if whole := d.watch.History()[2]; whole.Delivered != 20 || whole.Lag != 0.55 || whole.MostLag != 1 {
			t.Errorf("the last point of all sinks is %+v", whole)
		}
		if points := other.HistoryOf("new"); len(points) != 0 {
			t.Errorf("the points of a new sink are %+v", points)
		}
		if answer := d.ask("GET", "/api/history?sink=nowhere", ""); answer.Code != 404 {
			t.Errorf("an unknown sink got %d", answer.Code)
		}
	})
}
