package browser

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// parkMore writes messages that the shop rejects, and waits until the table has this number of
// parked messages.
func (s *scene) parkMore(topic string, count int, parked int64) {
	s.t.Helper()
	s.shop.refuse(topic, "HTTP 422: refused")
	var messages []outbox.Message
	for i := range count {
		messages = append(messages, outbox.Message{Topic: topic, Payload: fmt.Append(nil, i)})
	}
	s.write(messages...)
	s.counted(storage.StateError, parked)
}

// Messages that are parked while the dialog is open are not discarded, because the dialog did not
// show them.
func TestDiscardDeletesOnlyWhatWasShown(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.parkMore("orders", 3, 3)
		s.login()
		s.do("ask", filter(map[string]string{"state": "error", "topic": "orders"}), shows("#messages", "orders"), click("#bulk", "Discard"), shows("#preview", "3 messages will be deleted"))
		s.parkMore("orders", 50, 53)
		var danger, required bool
		s.do("look at the dialog", chromedp.Evaluate("document.getElementById('confirm-do').classList.contains('danger')", &danger),
			chromedp.Evaluate("document.querySelector('#confirm [name=reason]').required", &required))
		if !danger || !required {
			t.Errorf("the button looks like danger: %v; a reason is required: %v", danger, required)
		}
		s.do("discard", chromedp.SendKeys("#confirm [name=reason]", "a test"), click("#confirm", "Discard 3 messages"), gone("#confirm"), shows("#jobs", "3 of 3"))
		s.counted(storage.StateError, 50)
	})
}

// If the server refuses a listing because of too many concurrent reads, the page requests the
// listing again.
func TestAListingIsAskedForAgain(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.parkMore("orders", 1, 1)
		s.busy.Store(2)
		s.login()
		s.do("see the list", shows("#messages", "orders"), gone("#gone"))
	})
}

// A stopped job continues with the messages that were displayed when it began.
func TestAJobGoesOnWithWhatWasShown(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.parkMore("orders", 1200, 1200)
		s.gate.set(1)
		s.login()
		s.do("ask", filter(map[string]string{"state": "error", "topic": "orders"}), shows("#messages", "orders"), click("#bulk", "Requeue all"), shows("#preview", "1,200 messages"))
		s.shop.refuse("orders", "")
		s.do("begin, and stop it", click("#confirm", "Requeue "), gone("#confirm"), shows("#jobs", "500 of 1,200"), click("#jobs", "Stop"), shows("#jobs", "stopped"))
		s.counted(storage.StateDone, 500)
		s.parkMore("orders", 30, 730)
		s.shop.refuse("orders", "")
		s.gate.set(-1)
		s.do("go on", click("#jobs", "Continue"), shows("#jobs", "700 of 700"))
		s.counted(storage.StateError, 30)
	})
}

// The dialog's count matches the values of its fields, even after the operator has changed them.
func TestThePreviewFollowsTheFields(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.parkMore("ledger.entry", 1, 1)
		s.shop.refuse("held", "HTTP 422: refused")
		s.write(outbox.Message{Topic: "ledger.entry", Key: "k", Payload: []byte("held")})
		s.counted(storage.StateError, 2)
		s.login()
		s.do("ask", filter(map[string]string{"state": "error"}), shows("#messages", "ledger.entry"), click("#bulk", "Requeue all"), shows("#preview", "2 messages will be requeued"))
		s.do("choose a sink", chromedp.SetValue("#confirm [name=to]", "billing"), chromedp.Evaluate("document.querySelector('#confirm [name=to]').dispatchEvent(new Event('change', {bubbles: true}))", nil),
			shows("#preview", "1 message will be requeued"), shows("#preview", "1 other stays as it is"))
		s.shop.refuse("ledger.entry", "")
		s.do("requeue", click("#confirm", "Requeue 1 message"), gone("#confirm"), shows("#jobs", "1 of 1"))
		s.counted(storage.StateError, 1)
	})
}

// Two relays are behind one address. The relay that made a preview also carries out the change,
// and either relay can show and stop the job.
func TestAJobBehindOneAddressOfTwo(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.parkMore("orders", 1200, 1200)
		s.gate.set(1)
		other := admin.Handler(admin.Options{
			Sources: []admin.Source{{Name: "shop", Healthy: func() error { return nil }, Status: s.store.Status, Operator: s.gate, Watch: admin.NewWatch(nil, "billing")}},
			Metrics: http.NotFoundHandler(), Logger: slog.New(slog.DiscardHandler), ReaderToken: readerToken, OperatorToken: operatorToken,
		})
		t.Cleanup(other.Close)
		s.others = []*admin.Pages{other}
		s.login()
		s.do("ask", filter(map[string]string{"state": "error", "topic": "orders"}), shows("#messages", "orders"), click("#bulk", "Requeue all"), shows("#preview", "1,200 messages"))
		s.shop.refuse("orders", "")
		s.do("begin, and stop it", click("#confirm", "Requeue "), gone("#confirm"), shows("#jobs", "500 of 1,200"), click("#jobs", "Stop"), shows("#jobs", "stopped"))
		s.gate.set(-1)
		s.do("go on", click("#jobs", "Continue"), shows("#jobs", "700 of 700"))
		s.counted(storage.StateError, 0)
	})
}
