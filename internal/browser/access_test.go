package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// evaluate evaluates a JavaScript expression in the page.
func evaluate[T any](s *scene, expression string) (value T) {
	s.t.Helper()
	s.do("evaluate "+expression, chromedp.Evaluate(expression, &value))
	return value
}

// onSQLite runs a test on SQLite alone, because the test depends only on the page.
func onSQLite(t *testing.T, test func(s *scene)) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		if target.Kind == testdb.SQLite {
			test(newScene(t, target))
		}
	})
}

// Rows can be reached and opened with the keyboard alone. The focus returns to the row, and the
// page's refreshes don't change the focus.
func TestThePageIsUsedByTheKeyboard(t *testing.T) {
	onSQLite(t, func(s *scene) {
		s.parkMore("orders", 5, 5)
		s.login()
		s.do("see the rows", shows("#messages", "orders"), shows("#problems", "5 messages of orders parked"))
		if n := evaluate[int](s, "[...document.querySelectorAll('#messages tbody tr')].filter(row => row.tabIndex === 0).length"); n != 5 {
			s.t.Errorf("%d of 5 rows can be focused", n)
		}
		s.do("open the second", chromedp.Evaluate("document.querySelector('#messages tbody tr:nth-child(2)').focus()", nil), chromedp.KeyEvent("\r"), shows("#panel", "Message 2"),
			chromedp.KeyEvent("\x1b"), gone("#panel"))
		if !evaluate[bool](s, "document.activeElement === document.querySelector('#messages tbody tr:nth-child(2)')") {
			s.t.Error("the focus doesn't come back to the row")
		}
		s.do("focus a button and select a text", chromedp.Evaluate(`
			document.querySelector('#problems button').focus()
			getSelection().selectAllChildren(document.querySelector('#problems b'))
			window.was = [document.activeElement, String(getSelection())]
			window.rounds = 0
			window.waiting = refresh
			refresh().then(() => Promise.all([refreshLogs(), refreshJobs(), find()])).then(() => { window.rounds = 1 })`, nil),
			until("window.rounds === 1"))
		if !evaluate[bool](s, "document.activeElement === window.was[0] && document.activeElement.isConnected && String(getSelection()) === window.was[1] && window.was[1].length > 5") {
			s.t.Error("the focus or the selection is lost")
		}
		s.do("press r", chromedp.Evaluate("document.activeElement.blur(); choose(0)", nil), chromedp.KeyEvent("r"), shows("#confirm", "1 message will be requeued"))
		s.counted(storage.StateError, 5)
	})
}

// Severity and series don't depend on colour alone, changes are announced to screen readers, a
// favicon exists, and empty lists have a text.
func TestThePageIsReadWithoutColours(t *testing.T) {
	onSQLite(t, func(s *scene) {
		s.login()
		s.do("see empty lists", shows("#actions", "Nothing yet."), shows("#messages-none", "No message is parked."), shows("#problems", "Nothing is wrong."))
		s.parkMore("orders", 1, 1)
		s.do("see the severity in words", shows("#problems", "Warning: 1 message of orders parked"),
			until("document.getElementById('announce').textContent.includes('1 problems, such as parked') && document.getElementById('state-dot').title === 'Something needs attention'"))
		if got := evaluate[string](s, "getComputedStyle(document.querySelector('.key.k3')).borderBottomStyle"); got != "dotted" {
			s.t.Errorf("the third series is %s", got)
		}
		icon, err := http.Get(s.url + "/" + evaluate[string](s, "document.querySelector('link[rel=icon]').getAttribute('href')"))
		if err != nil {
			s.t.Fatal(err)
		}
		if _ = icon.Body.Close(); icon.StatusCode != 200 || icon.Header.Get("Content-Type") != "image/svg+xml" {
			s.t.Errorf("the icon is %d %v", icon.StatusCode, icon.Header)
		}
	})
}

// Lines stay within their charts even if values are missing, and all charts have the same axis of
// time.
func TestChartsStayWithinThemselves(t *testing.T) {
	onSQLite(t, func(s *scene) {
		begin := time.Now().Add(-time.Hour)
		for i := range 360 {
			p := admin.Point{At: begin.Add(time.Duration(i) * 10 * time.Second), Seconds: 10, Pending: -1, Waiting: -1, Error: -1}
			if i > 200 && i < 300 { // nothing is delivered at the other points
				p.Delivered, p.Lag, p.MostLag = 10, 1, 2
			}
			if i > 100 {
				p.Pending, p.Waiting, p.Error = 5, 1, 0
			}
			s.points = append(s.points, p)
		}
		s.login()
		s.do("see charts", until("document.querySelector('#chart-backlog path')"))
		outside := evaluate[[]string](s, `[...document.querySelectorAll('.charts svg path')].filter(path => {
			const box = path.getBBox(), view = path.ownerSVGElement.viewBox.baseVal
			return box.width > 0 && (box.x < -1 || box.x + box.width > view.width + 1 || box.y < -1 || box.y + box.height > view.height + 1)
		}).map(path => path.ownerSVGElement.id + ' ' + path.getAttribute('class'))`)
		if len(outside) > 0 {
			s.t.Errorf("these are drawn outside of their chart: %q", outside)
		}
		axes := evaluate[[]string](s, "[...document.querySelectorAll('.charts svg')].map(svg => [...svg.querySelectorAll('text')].slice(1).map(text => text.textContent).join('-'))")
		if len(axes) != 3 || axes[0] != axes[1] || axes[1] != axes[2] || !strings.Contains(axes[0], " ") {
			s.t.Errorf("the axes are %q", axes)
		}
		if got := evaluate[string](s, "document.getElementById('chart-lag').getAttribute('aria-label')"); got != "Lag: now 1 s, at most 2 s" && got != "Lag: now 2 s, at most 2 s" {
			s.t.Errorf("the chart is called %q", got)
		}
	})
}

// A message's content is displayed unchanged: numbers that JavaScript can't represent, a long text
// that is cut within a character, ids above 2^53, and right-to-left names.
func TestMessagesAreShownAsTheyAre(t *testing.T) {
	onSQLite(t, func(s *scene) {
		const numbers = `{"n":1970670598291982290,"big":1e400,"a":1,"a":2,"text":"say \"{,}\" \\","none":[],"list":[1.0,{}]}`
		s.write(outbox.Message{Topic: "numbers", Payload: []byte(numbers)}, outbox.Message{Topic: "long", Payload: []byte("x" + strings.Repeat("é", 200<<10))})
		s.counted(storage.StateDone, 2)
		s.login()
		s.do("open the numbers", chromedp.Evaluate("openMessage(1)", nil), shows("#panel", "Message 1"))
		want := "{\n  \"n\": 1970670598291982290,\n  \"big\": 1e400,\n  \"a\": 1,\n  \"a\": 2,\n  \"text\": \"say \\\"{,}\\\" \\\\\",\n  \"none\": [],\n  \"list\": [\n    1.0,\n    {}\n  ]\n}"
		if got := evaluate[string](s, "document.querySelector('#panel pre').textContent"); got != want {
			s.t.Errorf("shown as %s", got)
		}
		s.do("open the long text", chromedp.Evaluate("openMessage(2)", nil), shows("#panel", "Message 2"))
		if got := evaluate[string](s, "document.querySelector('#panel pre').textContent"); !strings.HasPrefix(got, "xéé") || !strings.HasSuffix(got, "é\n… and more") {
			s.t.Errorf("shown as %.40q", got)
		}
		// 2^53 + 1 is the first integer that a JavaScript number can't represent.
		const id = "9007199254740993"
		if _, err := s.db.DB.ExecContext(s.t.Context(), "INSERT INTO outbox_held (id, lane, message_id, topic, message_key, state, attempts, created_at, available_at, last_error, sinks, holds, payload, priority, crashes) SELECT "+id+", 1, '0197a3b4-0000-7abc-8def-0123456789ab', ?, '', 'error', 1, created_at, created_at, 'no', '', 0, 'x', 0, 0 FROM outbox_done LIMIT 1", "\u202etopic"); err != nil {
			s.t.Fatal(err)
		}
		s.do("find it", filter(map[string]string{"state": "error"}), shows("#messages", id), clickOn("#messages tbody tr"), shows("#panel", "Message "+id), shows("#problems", "\u2068\u202etopic\u2069"))
		s.do("discard it", click("#panel", "Discard"), shows("#preview", "1 message will be deleted"), chromedp.SendKeys("#confirm [name=reason]", "a test"), click("#confirm", "Discard 1 message"), gone("#confirm"))
		s.counted(storage.StateError, 0)
	})
}

// A browser whose clock is wrong displays times on the server's clock. Times have a time zone.
func TestTimesAreTheServers(t *testing.T) {
	onSQLite(t, func(s *scene) {
		s.write(outbox.Message{Topic: "orders", Payload: []byte("fine")})
		s.counted(storage.StateDone, 1)
		s.login()
		for _, minutes := range []int{-9, 9} {
			s.do("set the clock", chromedp.Evaluate(fmt.Sprintf("window.clock ||= Date.now; Date.now = () => window.clock() + %d * 60000; refresh()", minutes), nil),
				until("/alive (now|[1-9] s ago|[1-9]\\.[0-9] s ago)/.test(document.getElementById('relays').innerText)"))
		}
		s.do("open a message", chromedp.Evaluate("openMessage(1)", nil), shows("#panel", "Written"))
		if text := evaluate[string](s, "document.querySelector('.timeline').innerText"); !strings.Contains(text, "UTC") && !strings.Contains(text, "GMT") {
			s.t.Errorf("no zone in %s", text)
		}
	})
}
