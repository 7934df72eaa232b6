package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Without a token, /readyz shows whether the relay works, but not the reason, which may contain the name of the database's
// host.
func TestReadyzHidesReasonsWithoutAToken(t *testing.T) {
	t.Parallel()
	source := works("a")
	source.Healthy = func() error { return errors.New("user=relay host=db.internal:5432: refused") }
	waiting := works("b")
	waiting.StandbyReason = func() string { return "relay-7 has another setup" }
	o := options(source, waiting)
	o.ReaderToken = readers
	for _, accept := range []string{"", "application/json"} {
		stranger := ask(o, "GET", "/readyz", "Accept", accept)
		if text := stranger.Body.String(); stranger.Code != 503 || strings.Contains(text, "internal") || strings.Contains(text, "relay-7") || !strings.Contains(text, "ok, and waits") {
			t.Errorf("a stranger got %d %s", stranger.Code, text)
		}
		reader := ask(o, "GET", "/readyz", "Accept", accept, "Authorization", "Bearer "+readers)
		if text := reader.Body.String(); reader.Code != 503 || !strings.Contains(text, "db.internal") || !strings.Contains(text, "relay-7") {
			t.Errorf("a reader got %d %s", reader.Code, text)
		}
	}
}

// If payloads are hidden, the values of headers are hidden, too, but not their names. Receipts are hidden because they come from
// the sinks.
func TestHiddenHeadersAndReceipts(t *testing.T) {
	t.Parallel()
	for _, hides := range []bool{false, true} {
		d := newDesk(t, 0, func(o *Options) { o.HidePayloads = hides })
		d.db.Write(outbox.Message{Topic: "t", Payload: []byte("secret"), Headers: map[string]string{"copy-of-payload": "secret in a header"}})
		lanes, err := d.store.Acquire(t.Context(), "r", storage.Lanes, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		found, err := d.store.List(t.Context(), storage.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		done := storage.Settlement{ID: found[0].ID, Lane: found[0].Lane, MessageID: found[0].Message.ID, State: storage.StateDone, Receipt: "accepted: secret"}
		for _, lane := range lanes {
			if lane.Lane == done.Lane {
				done.Fence = lane.Fence
			}
		}
		if counts, err := d.store.Settle(t.Context(), "r", true, []storage.Settlement{done}); err != nil || counts.Changed != 1 {
			t.Fatal(counts, err)
		}
		for path, shown := range map[string][]string{
			"/api/messages":   {`"receipt":"(hidden)"`},
			"/api/messages/1": {`"receipt":"(hidden)"`, `"headers":{"copy-of-payload":"(hidden)"}`},
		} {
			text := d.ask("GET", path, "").Body.String()
			if !hides {
				shown = []string{"accepted: secret"}
			} else if strings.Contains(text, "secret") {
				t.Errorf("%s shows a text that must be hidden: %s", path, text)
			}
			for _, want := range shown {
				if !strings.Contains(text, want) {
					t.Errorf("%s has no %s: %s", path, want, text)
				}
			}
		}
	}
}

// If payloads are hidden, the API shows no text that may repeat a payload: in errors, attempts, sinks, groups, and the pauses
// of breakers.
func TestHiddenPayloadsAreNotInErrors(t *testing.T) {
	t.Parallel()
	const secret = "4711"
	d := newDesk(t, 3, func(o *Options) { o.HidePayloads = true })
	d.watch.SinkDown("main", sinks.ReasonConnection, "cannot send account "+secret)
	first := read[[]shownMessage](t, d.ask("GET", "/api/messages/2", ""))[0]
	d.watch.Attempted(relay.Attempt{At: time.Now(), Sink: "main", ID: 2, MessageID: first.MessageID, Number: 1, Reason: sinks.ReasonInvalid, Detail: "account " + secret, Became: "is parked"})
	tripped := storage.Control{Kind: storage.PauseSink, Name: "main", By: "breaker of r", Reason: "within a minute 50 messages were parked, 9 refused, and 0 delivered; the last answer: invalid: account " + secret}
	if err := d.store.SetControl(t.Context(), tripped, 0); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(reads, "/api/messages/2", "/api/messages?state=error") {
		text := d.asOperator("GET", path, "").Body.String()
		if strings.Contains(text, secret) {
			t.Errorf("%s shows %s", path, text)
		}
		if path == "/api/messages" && !strings.Contains(text, `"last_error":"invalid: (hidden)"`) || path == "/api/actions" && !strings.Contains(text, "50 messages were parked") {
			t.Errorf("%s doesn't show the reason: %s", path, text)
		}
	}
	groups := read[struct{ Parked []parkedGroup }](t, d.ask("GET", "/api/overview", "")).Parked
	if len(groups) != 1 || groups[0].Count != 3 || groups[0].Example != "invalid: (hidden)" {
		t.Errorf("the groups are %+v", groups)
	}
	for path, body := range map[string]string{"/api/messages?error=" + secret: "", "/api/jobs": `{"action":"discard","select":{"error":"` + secret + `"},"preview":true}`} {
		method := map[bool]string{true: "GET", false: "POST"}[body == ""]
		if answer := d.asOperator(method, path, body); answer.Code != 400 {
			t.Errorf("a search for an error got %d %s", answer.Code, answer.Body)
		}
	}
}

// A request with a text that isn't UTF-8 or has a zero character is refused, because databases refuse such text.
func TestTextsThatAreNotUTF8AreRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1, nil)
	for _, text := range []string{"%ff", "a%00", "%c3%28"} {
		for _, name := range []string{"topic", "key", "sink", "state", "since", "error", "id"} {
			if answer := d.ask("GET", "/api/messages?"+name+"="+text, ""); answer.Code != 400 {
				t.Errorf("%s=%s got %d %s", name, text, answer.Code, answer.Body)
			}
		}
	}
	for _, text := range []string{"\xff", `\u0000`} {
		for path, body := range map[string]string{
			"/api/controls":      `{"kind":"topic","name":"` + text + `"}`,
			"/api/controls/lift": `{"kind":"topic","name":"` + text + `"}`,
			"/api/jobs":          `{"action":"requeue","select":{"topic":"t"},"reason":"` + text + `"}`,
			"/api/login":         `{"token":"` + text + `"}`,
		} {
			if answer := d.asOperator("POST", path, body); answer.Code != 400 {
				t.Errorf("%s of %q got %d %s", path, text, answer.Code, answer.Body)
			}
		}
	}
}
