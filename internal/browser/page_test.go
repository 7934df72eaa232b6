package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// script is a name that would run a script if the page used it as markup.
const script = `<img src=x onerror="window.hacked=1">`

// awaits makes an evaluation wait for its promise.
func awaits(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// unharmed requires that no name was used as markup.
func (s *scene) unharmed() {
	s.t.Helper()
	if evaluate[bool](s, "Boolean(window.hacked) || document.querySelectorAll('main img, #panel img, dialog img').length > 0") {
		s.t.Error("a name of a message was used as markup")
	}
}

// The address names the filter and the message or the key in the panel, so that it can be shared. Opening it again shows the same.
func TestAddressNamesWhatIsShown(t *testing.T) {
	onSQLite(t, func(s *scene) {
		s.parkMore("orders", 3, 3)
		s.login()
		s.do("open one", filter(map[string]string{"state": "error", "topic": "orders"}), shows("#messages", "orders"), chromedp.Evaluate("choose(1, true)", nil), shows("#panel", "Message 2"))
		if at := evaluate[string](s, "location.hash"); at != "#state=error&topic=orders&message=2" {
			s.t.Errorf("the address ends with %s", at)
		}
		s.do("open the address again", chromedp.Reload(), shows("#panel", "Message 2"))
		if topic := evaluate[string](s, "document.querySelector('#filter [name=topic]').value"); topic != "orders" {
			s.t.Errorf("the filter has the topic %q", topic)
		}
		s.do("follow its link", clickOn("#panel .head a"), until("location.hash.endsWith('message=2') && document.querySelector('#filter [name=topic]').value === ''"), shows("#panel", "Message 2"))
		// A refresh may write the old address again before the page gets the event of the new one.
		s.do("go to another message", chromedp.Evaluate("location.hash = 'message=3'; place()", nil), shows("#panel", "Message 3"))
		s.do("close it", chromedp.KeyEvent("\x1b"), gone("#panel"), until("!location.hash.includes('message')"))
		s.do("log out", click("#top", "Log out"), chromedp.WaitVisible("#login"))
		s.do("follow a link before the login", chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/#message=1"), chromedp.WaitVisible("#login"), chromedp.SendKeys("#token", operatorToken), click("#login", "Log in"), shows("#panel", "Message 1"))
	})
}

// The timeline of a key shows what was delivered, what holds the key, and what waits, and unblocks it.
func TestTimeLineOfAKey(t *testing.T) {
	onSQLite(t, func(s *scene) {
		key := "k/" + script
		s.write(outbox.Message{Topic: "ledger.entry", Key: key, Payload: []byte("before")})
		s.counted(storage.StateDone, 1)
		s.shop.refuse("parked", "HTTP 409: "+script)
		s.write(outbox.Message{Topic: "ledger.entry", Key: key, Payload: []byte("parked")}, outbox.Message{Topic: "ledger.entry", Key: key, Payload: []byte("waits")})
		s.counted(storage.StateError, 1)
		s.login()
		s.do("open the line", shows("#messages", "ledger.entry"), clickOn("#messages tbody tr"), shows("#panel", "Message 2"), click("#panel", "Timeline of its key"),
			shows("#panel h2", "Key \u2068"+key), shows("#panel", "Blocks the key: later messages wait"), shows("#panel", "1 ledger.entry"), shows("#panel", "2 ledger.entry"), shows("#panel", "3 ledger.entry"), shows("#panel", "HTTP 409"))
		s.picture("key", 1280, 900, false)
		s.picture("key-phone", 390, 844, true)
		s.do("open it by its address", chromedp.EmulateViewport(1280, 900), chromedp.Reload(), shows("#panel", "Blocks the key"))
		s.do("skip", click("#panel", "Skip: unblock the key"))
		s.counted(storage.StateDone, 2)
		s.do("see it unblocked", click("#panel", "Refresh"), shows("#panel", "Parked or scheduled"), click("#panel", "1 ledger.entry"), shows("#panel", "Message 1"))
		s.unharmed()
	})
}

// Several messages are ticked and changed together, with those in other states left out.
func TestTickedMessagesAreChanged(t *testing.T) {
	onSQLite(t, func(s *scene) {
		s.parkMore("orders", 4, 4)
		s.write(outbox.Message{Topic: "fine"})
		s.counted(storage.StateDone, 1)
		s.login()
		s.do("list all", filter(map[string]string{"state": ""}), shows("#messages", "fine"))
		s.do("tick three", clickOn("#messages tbody tr:nth-child(1) input"), clickOn("#messages tbody tr:nth-child(3) input"), clickOn("#messages tbody tr:nth-child(5) input"),
			shows("#ticked", "3 messages ticked"), shows("#ticked", "Requeue 2"), shows("#ticked", "Replay 1"))
		if evaluate[bool](s, "document.getElementById('panel').checkVisibility()") {
			s.t.Error("ticking a row opened its message")
		}
		s.picture("ticked", 1280, 900, false)
		s.do("scroll", chromedp.EmulateViewport(390, 844), chromedp.Evaluate("document.getElementById('ticked').scrollIntoView()", nil))
		s.picture("ticked-phone", 390, 844, false)
		s.do("refresh the list", chromedp.EmulateViewport(1280, 900), chromedp.Evaluate("find()", nil, awaits), shows("#ticked", "3 messages ticked"))
		s.do("discard them", click("#ticked", "Discard 2"), shows("#preview", "2 messages will be deleted"), chromedp.SendKeys("#confirm [name=reason]", "a test"), click("#confirm", "Discard 2 messages"), gone("#confirm"))
		s.counted(storage.StateError, 2)
		s.do("tick all by the head and the keyboard", shows("#ticked", "1 message ticked"), clickOn("#tick-all"), shows("#ticked", "3 messages ticked"), chromedp.Evaluate("document.activeElement.blur(); choose(0)", nil), chromedp.KeyEvent("x"), shows("#ticked", "2 messages ticked"), click("#ticked", "Untick"), gone("#ticked"))
	})
}

// A topic that ends with * selects the topics that begin with the text before it, in lists and in changes.
func TestTopicsAreFilteredByTheirBeginning(t *testing.T) {
	onSQLite(t, func(s *scene) {
		for _, topic := range []string{"orders.paid", "orders.sent", "invoices.sent"} {
			s.shop.refuse(topic, "HTTP 422: no")
			s.write(outbox.Message{Topic: topic})
		}
		s.counted(storage.StateError, 3)
		s.login()
		s.do("filter", filter(map[string]string{"state": "error", "topic": "orders.*"}), shows("#messages", "orders.paid"), gone("#messages tbody tr:nth-child(3)"))
		s.do("requeue them", click("#bulk", "Requeue all"), shows("#preview", "2 messages will be requeued"), click("#confirm", "Cancel"), gone("#confirm"))
	})
}

// A copy of a message has a changed payload, and a link to the message that it was made from. The log names the person that the
// proxy names.
func TestCopyAsNewMessageAndItsAuthor(t *testing.T) {
	onSQLite(t, func(s *scene) {
		user := "Ann <b>Ü</b>"
		s.user.Store(&user)
		const wrong, right = `{"amount": "` + script + `"}`, "{\"amount\": 12}\n  "
		s.shop.refuse(wrong, "HTTP 422: no number")
		s.write(outbox.Message{Topic: "orders.paid", Key: "o-1", Payload: []byte(wrong), Headers: map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tenant": script}})
		s.counted(storage.StateError, 1)
		s.login()
		s.do("see the name", shows("#role", user))
		s.do("open it", shows("#messages", "o-1"), clickOn("#messages tbody tr"), shows("#panel", "Message 1"))
		if link := evaluate[string](s, "[...document.querySelectorAll('#panel a')].find(a => a.textContent === 'Trace').href"); link != "https://traces.example/4bf92f3577b34da6a3ce929d0e0e4736" {
			s.t.Errorf("the trace is %s", link)
		}
		s.do("copy it", click("#panel", "Copy as new message"), chromedp.WaitVisible("#confirm textarea"))
		if shown := evaluate[string](s, "document.querySelector('#confirm textarea').value"); shown != wrong {
			s.t.Errorf("the payload to change is %q", shown)
		}
		if evaluate[bool](s, "Boolean(document.querySelector('#confirm [name=by]'))") {
			s.t.Error("the dialog asks for a name, which the proxy has set")
		}
		s.picture("copy", 1280, 900, false)
		s.picture("copy-phone", 390, 844, true)
		s.do("write it", chromedp.EmulateViewport(1280, 900), chromedp.Evaluate(fmt.Sprintf("document.querySelector('#confirm textarea').value = %q", right), nil), chromedp.SendKeys("#confirm [name=reason]", "wrong amount"), click("#confirm", "Write"), gone("#confirm"),
			shows("#panel", "Message 2"), shows("#panel", "copy-of"), shows("#actions", "wrong amount"), shows("#actions", user+" from 127.0.0.1"))
		s.counted(storage.StateDone, 1)
		if n := s.shop.delivered(right); n != 1 {
			s.t.Errorf("the copy was delivered %d times, want once and unchanged", n)
		}
		s.do("follow the link to the old one", chromedp.Evaluate("[...document.querySelectorAll('#panel dd button.link')][0].click()", nil), shows("#panel", "Message 1"))
		s.unharmed()
	})
}

// The charts show one sink, and the values under the pointer.
func TestChartsOfASinkAndUnderThePointer(t *testing.T) {
	onSQLite(t, func(s *scene) {
		begin := time.Now().Add(-time.Hour)
		for i := range 361 {
			s.points = append(s.points, admin.Point{At: begin.Add(time.Duration(i) * 10 * time.Second), Seconds: 10, Delivered: int64(10 * i), Lag: 1, MostLag: 2, Pending: 5, Waiting: 1})
		}
		s.login()
		s.do("see charts", until("document.querySelector('#chart-rate path')"))
		point := func(chart string, at float64) string {
			return evaluate[string](s, fmt.Sprintf(`(() => {
				const node = document.getElementById(%q), box = node.getBoundingClientRect()
				node.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width * %f, clientY: box.top + 20}))
				return node.querySelector('.hover text').textContent
			})()`, chart, at))
		}
		if text := point("chart-rate", .5); !strings.HasSuffix(text, ": 180/s") {
			s.t.Errorf("in the middle the rate is %q, want 180/s", text)
		}
		if text := point("chart-lag", 1); !strings.HasSuffix(text, ": average 1 s, longest 2 s") {
			s.t.Errorf("at the end the lag is %q", text)
		}
		s.picture("hover", 1280, 900, false)
		s.do("refresh", chromedp.EmulateViewport(1280, 900), chromedp.Evaluate("refreshCharts()", nil, awaits))
		if evaluate[int](s, "document.querySelectorAll('.hover').length") != 1 {
			s.t.Error("the values disappeared at a refresh")
		}
		s.do("leave", chromedp.Evaluate("document.getElementById('chart-lag').dispatchEvent(new PointerEvent('pointerleave'))", nil))
		if evaluate[int](s, "document.querySelectorAll('.hover').length") != 0 {
			s.t.Error("the values stay when the pointer leaves")
		}
		s.points = nil
		s.do("choose a sink", chromedp.SetValue("#chart-sink", "ledger"), chromedp.Evaluate(`
			window.paths = []
			const before = api
			api = (path, ...more) => { window.paths.push(path); return before(path, ...more) }
			document.getElementById('chart-sink').dispatchEvent(new Event('change'))`, nil),
			until("window.paths.includes('history?sink=ledger')"), gone("#gone"))
		if sinks := evaluate[string](s, "[...document.querySelectorAll('#chart-sink option')].map(option => option.textContent).join()"); sinks != "all sinks,billing,ledger,reports" {
			s.t.Errorf("the sinks are %s", sinks)
		}
	})
}
