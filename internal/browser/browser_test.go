package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

var (
	screenshots = flag.String("screenshots", "", "a folder for pictures of the page")
	many        = flag.Int("many", 5000, "how many messages are requeued by a filter")
)

const (
	readerToken   = "the-token-of-readers"
	operatorToken = "the-token-of-operators"
)

// shared is the Chromium of all tests, because starting one takes as long as a test. Each test has a browser context of its own,
// like a private window, so tests share no cookies.
var shared struct {
	start sync.Once
	ctx   context.Context
	stop  context.CancelFunc
	err   error
}

func TestMain(m *testing.M) {
	status := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	os.Exit(status)
}

func startChromium(path string) {
	// Chromium's sandbox needs privileges that few containers have. The browser loads only the
	// tests' pages.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	// Newer Chromium versions send events that chromedp doesn't know and logs as errors.
	ctx, end := chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {}))
	shared.ctx, shared.stop = ctx, func() { end(); stop() }
	shared.err = chromedp.Run(ctx) // the browser lives as long as this context
}

// newBrowser opens a window for the test. If Chromium is missing, it skips the test, or fails it
// if REQUIRE_SERVERS=1.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	path := os.Getenv("ROWRELAY_TEST_CHROMIUM")
	if path == "" {
		const missing = "ROWRELAY_TEST_CHROMIUM isn't set: deploy/servers/servers up chromium"
		if os.Getenv("REQUIRE_SERVERS") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	shared.start.Do(func() { startChromium(path) })
	if shared.err != nil {
		t.Fatalf("start Chromium: %v", shared.err)
	}
	ctx, end := chromedp.NewContext(shared.ctx, chromedp.WithTargetID(newWindow(t)))
	t.Cleanup(end)
	chromedp.ListenTarget(ctx, func(event any) {
		switch event := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw: %s", event.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if event.Entry.Source == log.SourceSecurity || strings.Contains(event.Entry.Text, "Content Security Policy") {
				t.Errorf("the browser says: %s", event.Entry.Text)
			}
		}
	})
	if err := chromedp.Run(ctx, log.Enable()); err != nil {
		t.Fatalf("open a window: %v", err)
	}
	return ctx
}

// newWindow opens a window in a browser context of its own. chromedp.WithNewBrowserContext would open a tab, which fails in a
// browser context without a window.
func newWindow(t *testing.T) target.ID {
	t.Helper()
	ctx := cdp.WithExecutor(shared.ctx, chromedp.FromContext(shared.ctx).Browser)
	profile, err := target.CreateBrowserContext().Do(ctx)
	if err != nil {
		t.Fatalf("create a browser context: %v", err)
	}
	t.Cleanup(func() { _ = target.DisposeBrowserContext(profile).Do(ctx) })
	window, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).WithNewWindow(true).WithWidth(1280).WithHeight(900).Do(ctx)
	if err != nil {
		t.Fatalf("open a window: %v", err)
	}
	return window
}

// shop is the sink. It rejects some messages, fails others with an error to retry, and accepts
// the rest.
type shop struct {
	mu      sync.Mutex
	refuses map[string]string // the reason for a rejection, by topic or payload
	fails   map[string]bool   // topics whose messages must be retried
	got     map[string]int    // the number of deliveries, by payload
}

func (s *shop) Open(context.Context) error  { return nil }
func (s *shop) Close(context.Context) error { return nil }

func (s *shop) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := make([]sinks.Outcome, len(batch))
	for i, m := range batch {
		refusal := s.refuses[string(m.Payload)]
		if refusal == "" {
			refusal = s.refuses[m.Topic]
		}
		if s.fails[m.Topic] {
			outcomes[i] = sinks.Fail(sinks.Retry, sinks.ReasonServerError, "the ledger is closed")
			continue
		}
		if refusal != "" {
			outcomes[i] = sinks.Fail(sinks.Reject, sinks.ReasonInvalid, refusal)
			continue
		}
		s.got[string(m.Payload)]++
		outcomes[i] = sinks.Ok("receipt " + m.ID[:8])
	}
	return outcomes
}

func (s *shop) refuse(what, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses[what] = why
}

func (s *shop) fail(topic string, fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[topic] = fails
}

func (s *shop) delivered(payload string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got[payload]
}

// gate is an Operator that requeues only a given number of batches. The next batch waits until
// its job is stopped.
type gate struct {
	storage.Operator
	mu   sync.Mutex
	left int // how many more batches are requeued; negative: no limit
}

func (g *gate) set(left int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = left
}

func (g *gate) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	g.mu.Lock()
	waits := g.left == 0
	g.left--
	g.mu.Unlock()
	if waits {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return g.Operator.Requeue(ctx, filter)
}

// heard is the relay's store, and counts the reads of the controls.
type heard struct {
	*sqlstore.Store
	asked atomic.Int64
}

func (h *heard) Controls(ctx context.Context) ([]storage.Control, error) {
	defer h.asked.Add(1)
	return h.Store.Controls(ctx)
}

// scene is a relay with its admin page.
type scene struct {
	t      *testing.T
	db     testdb.Database
	store  *sqlstore.Store
	heard  *heard
	gate   *gate
	shop   *shop
	writer *outbox.Writer
	url    string
	points []admin.Point  // the charts' points, for pictures; empty: the real ones
	busy   atomic.Int64   // how many of the next listings are refused
	dead   atomic.Bool    // while it is true, no request is answered
	others []*admin.Pages // more admin servers, which take turns with the scene's server like replicas behind one address
	turn   atomic.Int64
	user   atomic.Pointer[string] // the name that the proxy sets; nil: there is no proxy
	ctx    context.Context        // the context of the browser
}

func newScene(t *testing.T, target testdb.Target) *scene {
	t.Helper()
	s := &scene{t: t, ctx: newBrowser(t), db: target.OpenOutbox(t), shop: &shop{refuses: map[string]string{}, fails: map[string]bool{}, got: map[string]int{}}}
	d, err := dialect.ByName(s.db.Kind)
	if err != nil {
		t.Fatal(err)
	}
	if s.store, err = sqlstore.Open(t.Context(), s.db.DB, d, sqlstore.Options{}); err != nil {
		t.Fatal(err)
	}
	if s.writer, err = outbox.NewWriter(d, outbox.Options{}); err != nil {
		t.Fatal(err)
	}
	s.heard = &heard{Store: s.store}
	s.gate = &gate{Operator: s.store, left: -1}
	quiet := slog.New(slog.DiscardHandler)
	watch := admin.NewWatch(nil, "billing", "ledger", "reports")
	running, err := relay.New(s.heard, relay.Options{
		Name: "relay-1", Observer: watch, Logger: quiet, Poll: 50 * time.Millisecond,
		Sinks: map[string]relay.SinkOptions{"billing": {Sink: s.shop}, "ledger": {Sink: s.shop, OnPark: relay.HoldKey, JudgeAloneAfter: relay.JudgeAtOnce},
			"reports": {Sink: s.shop, JudgeAloneAfter: relay.JudgeAtOnce, Backoff: relay.Backoff{Min: decade, Max: decade}}},
		Routes: []relay.Route{
			{Prefix: "ledger.", Sink: "ledger"},
			{Prefix: "reports.", Sink: "reports"},
			{Topic: "*", Sink: "billing"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()
	pages := admin.Handler(admin.Options{
		Sources: []admin.Source{{Name: "shop", Healthy: running.Healthy, Status: watch.Counting(s.store.Status), Operator: s.gate, Reads: s.store, Watch: watch,
			Write: func(ctx context.Context, m outbox.Message) error {
				return s.writer.Write(ctx, outbox.WithoutTransaction(s.db.DB), m)
			}}},
		TraceURL: "https://traces.example/{trace_id}", UserHeader: "X-Forwarded-User", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Metrics: http.NotFoundHandler(), Logger: quiet, ReaderToken: readerToken, OperatorToken: operatorToken,
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if s.points != nil && request.URL.Path == "/api/history" {
			_ = json.NewEncoder(w).Encode(s.points)
			return
		}
		if user := s.user.Load(); user != nil { // as a proxy does
			request.Header.Set("X-Forwarded-User", *user)
		}
		if s.dead.Load() {
			panic(http.ErrAbortHandler)
		}
		if request.URL.Path == "/api/messages" && s.busy.Add(-1) >= 0 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, `{"error": "busy"}`, http.StatusTooManyRequests)
			return
		}
		if all := append([]*admin.Pages{pages}, s.others...); strings.HasPrefix(request.URL.Path, "/api/") {
			all[int(s.turn.Add(1))%len(all)].ServeHTTP(w, request)
			return
		}
		pages.ServeHTTP(w, request)
	}))
	s.url = server.URL
	t.Cleanup(func() {
		pages.Close()
		server.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// write writes messages in one transaction.
func (s *scene) write(messages ...outbox.Message) {
	s.t.Helper()
	tx, err := s.db.DB.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.writer.Write(s.t.Context(), tx, messages...); err != nil {
		s.t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

// patience is the time limit for each step of the page.
const patience = 5 * time.Minute

// decade is the bound of back-offs that must not end within a test. It is this long because a
// relay draws each wait at random between zero and the bound.
const decade = 90_000 * time.Hour

// do runs steps in the browser.
func (s *scene) do(what string, steps ...chromedp.Action) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, steps...); err != nil {
		var text string
		_ = chromedp.Run(s.ctx, chromedp.Evaluate("document.body.innerText", &text))
		s.t.Fatalf("%s: %v; the page shows:\n%s", what, err, text)
	}
}

// until waits until the JavaScript expression is true.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingTimeout(patience))
}

// shows waits until the element is visible and its text contains the argument want.
func shows(selector, want string) chromedp.Action {
	return until(fmt.Sprintf("Boolean(document.querySelector(%q)?.checkVisibility() && document.querySelector(%[1]q).innerText.includes(%q))", selector, want))
}

// gone waits until no visible element matches.
func gone(selector string) chromedp.Action {
	return until(fmt.Sprintf("!document.querySelector(%q)?.checkVisibility()", selector))
}

// click clicks the button with this text within an element.
func click(within, text string) chromedp.Action {
	button := fmt.Sprintf("[...document.querySelectorAll(%q)].find(button => button.checkVisibility() && !button.disabled && button.innerText.startsWith(%q))", within+" button", text)
	return chromedp.Tasks{
		until("Boolean(" + button + ")"),
		chromedp.Evaluate(button+".click()", nil),
	}
}

// clickOn clicks an element, even if the page redraws it meanwhile.
func clickOn(selector string) chromedp.Action {
	return until(fmt.Sprintf("(() => { const found = document.querySelector(%q); if (found) found.click(); return Boolean(found) })()", selector))
}

// filter fills in the form of filters and submits it.
func filter(fields map[string]string) chromedp.Action {
	steps := chromedp.Tasks{chromedp.Evaluate("document.getElementById('filter').reset()", nil)}
	for name, value := range fields {
		steps = append(steps, chromedp.SetValue("#filter [name="+name+"]", value))
	}
	return append(steps, chromedp.Evaluate("document.getElementById('filter').requestSubmit()", nil))
}

// counted waits until the table has the wanted number of messages in a state.
func (s *scene) counted(state storage.State, want int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for {
		status, err := s.store.Status(ctx)
		if err != nil {
			s.t.Fatalf("waiting for %d messages in state %s: %v", want, state, err)
		}
		if status.Counts[state] == want {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *scene) login() {
	s.t.Helper()
	s.do("log in", chromedp.Navigate(s.url), chromedp.WaitVisible("#login"), chromedp.SendKeys("#token", operatorToken), click("#login", "Log in"), shows("#role", "operator"), gone("#login"))
}

// picture takes a screenshot if the flag -screenshots is set.
func (s *scene) picture(name string, width, height int64, dark bool) {
	s.t.Helper()
	if *screenshots == "" {
		return
	}
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	var png []byte
	s.do("take a picture",
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.EmulateViewport(width, height), chromedp.Sleep(300*time.Millisecond), chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(*screenshots, name+"-"+scheme+".png"), png, 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func onDatabases(t *testing.T, test func(t *testing.T, target testdb.Target)) {
	for _, target := range testdb.Each() {
		if target.Name == "postgres15/pgx" || target.Name == "sqlite/modernc" {
			t.Run(target.Name, func(t *testing.T) { test(t, target) })
		}
	}
}

// An operator finds a parked message by its error, reads its history, requeues it and sees it
// delivered.
func TestAParkedMessageIsFoundAndRequeued(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		const hostile = `{"note":"<img src=x onerror=alert(1)>"}`
		s.shop.refuse(hostile, "HTTP 422: the card was declined <script>alert(1)</script>")
		s.write(outbox.Message{Topic: "orders.paid", Key: "o-1", Payload: []byte(hostile), Headers: map[string]string{"tenant": "<b>acme</b>"}}, outbox.Message{Topic: "orders.paid", Payload: []byte("fine")})
		s.counted(storage.StateError, 1)
		s.login()
		s.do("see it among the problems", shows("#problems", "1 message of orders.paid parked"), shows("#problems", "the card was declined"))
		s.do("find it by its error", filter(map[string]string{"error": "card was declined"}), shows("#messages", "o-1"), clickOn("#messages tbody tr"),
			shows("#panel", "failed after"), shows("#panel", "invalid: HTTP 422"), shows("#panel", "<script>alert(1)</script>"), shows("#panel", "<b>acme</b>"), shows("#panel", `"note": "<img src=x`))
		s.shop.refuse(hostile, "")
		s.do("requeue it", click("#panel", "Requeue"), shows("#panel", "Delivered"), shows("#panel", "receipt "), shows("#actions", "requeue"))
		if n := s.shop.delivered(hostile); n != 1 {
			t.Errorf("delivered %d times, want once", n)
		}
		var injected int
		s.do("look for markup of messages", chromedp.Evaluate("document.querySelectorAll('main img, main script, #panel img, #panel script, #panel b').length", &injected))
		if injected != 0 {
			t.Errorf("%d elements are made of what messages carry", injected)
		}
	})
}

// A job requeues all messages that match a filter. The job is stopped half-way and continued.
func TestManyAreRequeuedByAFilter(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.shop.refuse("bulk", "HTTP 503 for a while")
		for at := 0; at < *many; at += 500 {
			batch := make([]outbox.Message, min(500, *many-at))
			for i := range batch {
				batch[i] = outbox.Message{Topic: "bulk", Payload: fmt.Append(nil, at+i)}
			}
			s.write(batch...)
		}
		s.counted(storage.StateError, int64(*many))
		s.shop.refuse("bulk", "")
		s.gate.set(3)
		s.login()
		began := time.Now()
		total := strings.TrimSpace(commas(*many))
		s.do("ask how many", filter(map[string]string{"state": "error", "topic": "bulk"}), shows("#messages", "bulk"), click("#bulk", "Requeue all"), shows("#preview", total+" messages"))
		s.picture("bulk", 1280, 900, false)
		s.do("begin", click("#confirm", "Requeue "), gone("#confirm"), shows("#jobs", "1,500 of "+total))
		s.picture("job", 1280, 900, true)
		s.do("stop half-way", click("#jobs", "Stop"), shows("#jobs", "stopped"))
		s.counted(storage.StateError, int64(*many-1500))
		s.gate.set(-1)
		s.do("go on", click("#jobs", "Continue"), shows("#jobs", commas(*many-1500)+" of "+commas(*many-1500)))
		t.Logf("%d messages by the page, with a stop: %v", *many, time.Since(began).Round(time.Millisecond))
		s.counted(storage.StateError, 0)
		s.counted(storage.StatePending, 0)
		s.counted(storage.StateDone, int64(*many))
	})
}

func commas(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", commas(n/1000), n%1000)
}

// A sink is paused and resumed.
func TestASinkIsPausedAndResumed(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.login()
		s.do("pause it", click("#sinks li:first-child", "Pause"), chromedp.WaitVisible("#confirm"), chromedp.SendKeys("#confirm [name=reason]", "a test"), chromedp.SendKeys("#confirm [name=by]", "ann"), click("#confirm", "Pause"),
			shows("#sinks li:first-child", "paused"), shows("#problems", "The sink billing is paused"), shows("#actions", "ann from 127.0.0.1"))
		// When the relay has read the controls twice more, it has applied this control.
		for heard := s.heard.asked.Load() + 2; s.heard.asked.Load() < heard; {
			s.do("wait", chromedp.Poll("true", nil))
		}
		s.write(outbox.Message{Topic: "orders", Payload: []byte("waits")}, outbox.Message{Topic: "ledger.entry", Payload: []byte("goes")})
		s.counted(storage.StateDone, 1)
		if s.shop.delivered("goes") != 1 || s.shop.delivered("waits") != 0 {
			t.Error("the paused sink got its message, or the other one didn't")
		}
		s.do("resume it", click("#sinks li:first-child", "Resume"), shows("#problems", "Nothing is wrong"))
		s.counted(storage.StateDone, 2)
	})
}

// The first message of a held key is skipped, and the key continues.
func TestTheHeadOfAKeyIsSkipped(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.shop.refuse("bad entry", "no such account")
		s.write(outbox.Message{Topic: "ledger.entry", Key: "account-1", Payload: []byte("bad entry")}, outbox.Message{Topic: "ledger.entry", Key: "account-1", Payload: []byte("next entry")})
		s.counted(storage.StateError, 1)
		s.login()
		s.do("find it", shows("#problems", "1 key is blocked by a parked message"), click("#problems", "Show"), chromedp.WaitVisible("#bulk"),
			chromedp.KeyEvent("j"), chromedp.KeyEvent("\r"), shows("#panel", "Message "))
		s.do("find what waits by its id, whatever its state is", chromedp.KeyEvent("\x1b"), gone("#panel"), filter(map[string]string{"id": "2"}), shows("#messages", "pending"),
			filter(map[string]string{"id": "1"}), shows("#messages", "holds its key"), chromedp.KeyEvent("j"), chromedp.KeyEvent("\r"), shows("#panel", "Message 1"))
		s.do("skip it", click("#panel", "Skip"))
		s.counted(storage.StateDone, 1)
		if s.shop.delivered("next entry") != 1 {
			t.Error("the next message of the key isn't delivered")
		}
		s.do("see it parked without its key", shows("#panel", "Parked: it waits"), until("!document.querySelector('#panel .head').innerText.includes('holds its key')"))
		s.counted(storage.StateError, 1)
	})
}

func TestWhatWaitsForItsNextAttemptIsTriedNow(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.shop.fail("reports.daily", true)
		for i := range 4 {
			s.write(outbox.Message{Topic: "reports.daily", Key: fmt.Sprint("k", i), Payload: fmt.Append(nil, "report ", i)})
		}
		s.counted(storage.StateRetry, 4)
		s.login()
		s.do("find one", filter(map[string]string{"state": "retry", "key": "k0"}), shows("#messages", "the ledger is closed"), gone("#messages tbody tr:nth-child(2)"),
			chromedp.KeyEvent("j"), chromedp.KeyEvent("\r"), shows("#panel", "Message "))
		s.shop.fail("reports.daily", false)
		s.do("try it now", click("#panel", "Retry now"), shows("#panel", "Delivered"), shows("#actions", "retry"))
		s.do("skip one", chromedp.KeyEvent("\x1b"), gone("#panel"), filter(map[string]string{"state": "retry", "key": "k1"}), shows("#messages", "k1"), gone("#messages tbody tr:nth-child(2)"),
			chromedp.KeyEvent("j"), chromedp.KeyEvent("\r"), click("#panel", "Skip"), shows("#preview", "1 message will be parked without another attempt"), click("#confirm", "Skip"), gone("#confirm"))
		s.counted(storage.StateError, 1)
		s.do("try the others", chromedp.KeyEvent("\x1b"), filter(map[string]string{"state": "retry"}), shows("#bulk", "waiting for their next attempt"), click("#bulk", "Retry all now"),
			shows("#preview", "2 messages will be tried again now"), click("#confirm", "Retry"), gone("#confirm"))
		s.counted(storage.StateDone, 3)
	})
}

// Counts that were too expensive are displayed as estimates.
func TestCountsThatAreEstimates(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.login()
		for status, want := range map[string]string{
			`{pending: 5000}`:                         "5,000",
			`{pending: 5000, estimated: ["pending"]}`: "≈ 5,000",
			`{pending: 5000, at_least: ["pending"]}`:  "≥ 5,000",
			`{pending: 0, absent: ["counts"]}`:        "not counted",
		} {
			var got string
			s.do("count", chromedp.Evaluate("count("+status+", 'pending')", &got))
			if got != want {
				t.Errorf("%s is shown as %q, want %q", status, got, want)
			}
		}
	})
}

// A late response doesn't replace what the operator has opened or searched meanwhile, and doesn't
// reopen what the operator has closed.
func TestLateAnswers(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.shop.refuse("bad", "no")
		s.write(outbox.Message{Topic: "first", Payload: []byte("bad")}, outbox.Message{Topic: "second", Payload: []byte("bad")})
		s.counted(storage.StateError, 2)
		s.login()
		late := func(what string) chromedp.Action { // delays the next response whose path contains the argument what
			return chromedp.Evaluate(fmt.Sprintf(`(() => {
				const fetch = window.asked || window.fetch, what = %q
				window.asked = fetch
				window.come = null
				window.arrived = false
				window.fetch = async (path, ...more) => {
					const answer = await fetch(path, ...more)
					if (!String(path).includes(what) || window.come) return answer
					await new Promise(resolve => { window.come = resolve })
					setTimeout(() => { window.arrived = true }, 50) // by then the page has processed the response
					return answer
				}
			})()`, what), nil)
		}
		asked := until("Boolean(window.come)")
		comes := chromedp.Tasks{chromedp.Evaluate("window.come()", nil), until("window.arrived")}
		rows := func(want int) chromedp.Action {
			return until(fmt.Sprintf("document.querySelectorAll('#messages tbody tr').length === %d", want))
		}
		wantPanel := func(step, want string) {
			t.Helper()
			var shown string
			s.do(step, chromedp.Evaluate("document.getElementById('panel').checkVisibility() ? document.querySelector('#panel h2').innerText : ''", &shown))
			if shown != want {
				t.Errorf("%s: the panel shows %q, want %q", step, shown, want)
			}
		}
		s.do("open one, and another before it has come", rows(2), late("messages/1"), chromedp.Evaluate("openMessage('1')", nil), asked,
			chromedp.Evaluate("openMessage('2')", nil), shows("#panel", "Message 2"), comes)
		wantPanel("another was opened", "Message 2")
		s.do("open one, and close it before it has come", late("messages/1"), chromedp.Evaluate("openMessage('1')", nil), asked, chromedp.KeyEvent("\x1b"), gone("#panel"), comes)
		wantPanel("it was closed", "")
		s.do("look for all, and for one before they have come", late("messages?state=error"), filter(map[string]string{"state": "error"}), asked, filter(map[string]string{"id": "2"}), rows(1), comes)
		s.do("see only the one", rows(1), shows("#messages", "second"), gone("#next"))
		s.do("choose it, and look for it once more", chromedp.KeyEvent("j"), late("messages?id=2"), chromedp.Evaluate("find()", nil), asked, comes, chromedp.KeyEvent("\r"), shows("#panel", "Message 2"))
		var all string
		s.do("read the list", chromedp.Evaluate("document.querySelector('#messages tbody').innerText", &all))
		if strings.Contains(all, "first") {
			t.Errorf("the result of the previous search has appeared in the list: %s", all)
		}
	})
}

// Without the operator's token every change is refused.
func TestChangesAreRefusedWithoutTheToken(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.shop.refuse("bad", "no")
		s.write(outbox.Message{Topic: "t", Payload: []byte("bad")})
		s.counted(storage.StateError, 1)
		s.do("log in to read", chromedp.Navigate(s.url), chromedp.WaitVisible("#login"), chromedp.SendKeys("#token", "a wrong one"), click("#login", "Log in"), shows("#login-error", "the token is wrong"),
			chromedp.SetValue("#token", readerToken), click("#login", "Log in"), shows("#role", "reader"), shows("#messages", "parked"),
			clickOn("#messages tbody tr"), shows("#panel", "Parked"))
		var buttons []string
		s.do("look for buttons", chromedp.Evaluate(`[...document.querySelectorAll('button')].filter(b => b.checkVisibility()).map(b => b.innerText)`, &buttons))
		for _, button := range buttons {
			for _, change := range []string{"Requeue", "Discard", "Skip", "Pause", "Limit", "Replay", "Stop"} {
				if strings.HasPrefix(button, change) {
					t.Errorf("a reader sees the button %q", button)
				}
			}
		}
		for path, body := range map[string]string{
			"jobs": `{"action":"discard","all":true,"select":{}}`, "jobs/1/stop": `{}`, "replays/x/stop": `{}`,
			"controls": `{"kind":"sink","name":"billing"}`, "controls/lift": `{"kind":"sink","name":"billing"}`,
		} {
			var code int
			s.do("try "+path, chromedp.Evaluate(fmt.Sprintf(`fetch('/api/%s', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: %q}).then(a => a.status)`, path, body), &code,
				func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			if code != http.StatusForbidden {
				t.Errorf("%s got %d, want 403", path, code)
			}
			if answer, err := http.Post(s.url+"/api/"+path, "application/json", strings.NewReader(body)); err != nil || answer.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s without any token: %v, %v, want 401", path, answer, err)
			} else {
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
			}
		}
		s.counted(storage.StateError, 1)
	})
}

// TestPictures takes screenshots of the page after an outage, into the folder -screenshots.
func TestPictures(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots")
	}
	for _, target := range testdb.Each() {
		if target.Name != "sqlite/modernc" {
			continue
		}
		s := newScene(t, target)
		s.shop.refuse("refunds.issued", "HTTP 422: currency XBT isn't known")
		s.shop.refuse("orders.paid", "HTTP 400: field customer is missing")
		s.shop.refuse(`{"account":"4711","amount":-1250,"currency":"EUR","booked":"2026-11-24","tags":["refund","manual"]}`, "HTTP 409: account 4711 is closed")
		for i := range 180 {
			s.write(outbox.Message{Topic: "invoices.sent", Key: fmt.Sprintf("invoice-%d", 1000+i), Payload: fmt.Append(nil, i)})
		}
		for i := range 34 {
			s.write(outbox.Message{Topic: "refunds.issued", Key: fmt.Sprintf("refund-%d", 880+i), Payload: fmt.Appendf(nil, `{"refund":%d}`, i)})
		}
		for i := range 5 {
			s.write(outbox.Message{Topic: "orders.paid", Key: fmt.Sprintf("order-%d", 31+i), Payload: fmt.Appendf(nil, `{"order":%d}`, i), Headers: map[string]string{"content-type": "application/json"}})
		}
		s.write(outbox.Message{Topic: "ledger.entry", Key: "account-4711", Payload: []byte(`{"account":"4711","amount":-1250,"currency":"EUR","booked":"2026-11-24","tags":["refund","manual"]}`), Headers: map[string]string{"content-type": "application/json", "tenant": "acme"}},
			outbox.Message{Topic: "ledger.entry", Key: "account-4711", Payload: []byte(`{}`)})
		s.counted(storage.StateError, 40)
		if err := s.store.SetControl(t.Context(), storage.Control{Kind: storage.PauseTopic, Name: "newsletter.queued", By: "ann", Reason: "the provider asked us to wait"}, 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		s.points = aBadNight(time.Now())
		s.login()
		s.do("look at parked ones", filter(map[string]string{"state": "error"}), shows("#messages", "refund-880"), shows("#problems", "newsletter"), until("document.querySelector('#chart-backlog path')"))
		for _, dark := range []bool{false, true} {
			s.picture("page", 1280, 900, dark)
			s.picture("phone", 390, 844, dark)
		}
		s.do("open one", chromedp.EmulateViewport(1280, 900), filter(map[string]string{"state": "error", "key": "account-4711"}), gone("#messages tbody tr:nth-child(2)"), chromedp.KeyEvent("j"), chromedp.KeyEvent("\r"), shows("#panel", "Headers"))
		for _, dark := range []bool{false, true} {
			s.picture("message", 1280, 900, dark)
			s.picture("message-phone", 390, 844, dark)
		}
		s.do("ask", chromedp.EmulateViewport(1280, 900), chromedp.KeyEvent("\x1b"), filter(map[string]string{"state": "error", "topic": "refunds.issued"}), shows("#messages", "refund-880"), click("#bulk", "Requeue all"), shows("#preview", "34 messages"))
		s.picture("ask", 1280, 900, false)
		s.picture("ask-phone", 390, 844, true)
		s.do("ask for a discard", chromedp.EmulateViewport(1280, 900), click("#confirm", "Cancel"), gone("#confirm"), click("#bulk", "Discard"), shows("#preview", "34 messages"))
		s.picture("discard", 1280, 900, false)
		s.picture("discard-phone", 390, 844, true)
		s.dead.Store(true)
		s.do("lose the server", chromedp.EmulateViewport(1280, 900), click("#confirm", "Cancel"), gone("#confirm"), shows("#problems", "The state is unknown"))
		s.picture("dead", 1280, 900, true)
		s.picture("dead-phone", 390, 844, false)
	}
}

// aBadNight returns six hours of traffic, with an outage of forty minutes.
func aBadNight(now time.Time) (points []admin.Point) {
	backlog := 0.0
	for i := range 2160 {
		at := now.Add(time.Duration(i-2159) * 10 * time.Second)
		wave := 420 + 130*math.Sin(float64(i)/300) + 30*math.Sin(float64(i)/7) + 18*math.Sin(float64(i)/2.3)
		rate := wave
		down := i > 1240 && i < 1480
		switch {
		case down:
			rate, backlog = 40+8*math.Sin(float64(i)/5), backlog+10*(wave-40)
		case backlog > 0:
			rate = 1900 + 90*math.Sin(float64(i)/9)
			backlog = max(0, backlog-10*(rate-wave))
		}
		lag := .012 + .004*math.Sin(float64(i)/11) + backlog/1900
		points = append(points, admin.Point{At: at, Seconds: 10, Delivered: int64(10 * rate), Lag: lag, MostLag: lag*1.6 + .03, Pending: int64(backlog) + 12, Waiting: 60 + int64(backlog/60), Error: min(40, int64(i/54))})
	}
	return points
}
