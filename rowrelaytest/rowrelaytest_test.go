package rowrelaytest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/rowrelaytest"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// mailer is the code under test.
type mailer struct {
	down bool
	sent []string
}

func (m *mailer) orderPaid(_ context.Context, message sinks.Message) error {
	if m.down {
		return errors.New("the mail server is down")
	}
	if message.Key == "" {
		return inproc.Permanent(errors.New("no order"))
	}
	m.sent = append(m.sent, message.Key)
	return nil
}

// A scheduled message can be cancelled before and after a relay has deferred it, but not in the
// last seconds before it is due.
func TestScheduledIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, m := rowrelaytest.NewOutbox(), &mailer{}
		handlers := map[string]inproc.Handler{"orders.paid": m.orderPaid}
		var ids []string
		for _, key := range []string{"order-1", "order-2", "order-3"} {
			ids = append(ids, outbox.NewID())
			if err := box.Write(t.Context(), nil, outbox.Message{ID: ids[len(ids)-1], Topic: "orders.paid", Key: key, AvailableAt: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		cancels := func(id string, want int) {
			t.Helper()
			if cancelled, err := box.Cancel(t.Context(), nil, id); err != nil || len(cancelled) != want {
				t.Errorf("Cancel = %v, %v; want %d", cancelled, err, want)
			}
		}
		cancels(ids[0], 1)
		cancels(ids[0], 0)
		box.Deliver(t, handlers)
		cancels(ids[1], 1)
		time.Sleep(time.Hour - time.Second)
		cancels(ids[2], 0)
		time.Sleep(time.Minute)
		box.Deliver(t, handlers)
		if fmt.Sprint(m.sent) != "[order-3]" {
			t.Errorf("sent %q", m.sent)
		}
	})
}

// If the handler returns an error, its message is retried or parked. The test's clock is
// simulated, so the back-off takes no real time.
func TestHandlerIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		box, m := rowrelaytest.NewOutbox(), &mailer{down: true}
		for _, key := range []string{"order-1", "", "order-2"} {
			if err := box.Write(t.Context(), nil, outbox.Message{Topic: "orders.paid", Key: key}); err != nil {
				t.Fatal(err)
			}
		}
		handlers := map[string]inproc.Handler{"orders.paid": m.orderPaid}
		box.Deliver(t, handlers)
		if len(m.sent) > 0 {
			t.Errorf("sent %q", m.sent)
		}
		m.down = false
		time.Sleep(time.Hour)
		box.Deliver(t, handlers)
		want := []storage.State{storage.StateDone, storage.StateError, storage.StateDone}
		for i, message := range box.Messages(t) {
			if message.State != want[i] {
				t.Errorf("message %q is %s, want %s", message.Message.Key, message.State, want[i])
			}
		}
		if fmt.Sprint(m.sent) != "[order-1 order-2]" {
			t.Errorf("sent %q", m.sent)
		}
	})
}

func TestWriteRefusesAsAWriterDoes(t *testing.T) {
	t.Parallel()
	box := rowrelaytest.NewOutbox()
	err := box.Write(t.Context(), nil, outbox.Message{Topic: "a"}, outbox.Message{})
	if !errors.Is(err, outbox.ErrInvalid) || len(box.Messages(t)) > 0 {
		t.Errorf("Write: %v, and there are %v", err, box.Messages(t))
	}
}

// deaf counts the errors that a test reports, and doesn't fail the test.
type deaf struct {
	testing.TB
	errors int
}

func (d *deaf) Errorf(string, ...any) { d.errors++ }

func TestTopicsWithoutAHandlerAreReported(t *testing.T) {
	t.Parallel()
	box := rowrelaytest.NewOutbox()
	if err := box.Write(t.Context(), nil, outbox.Message{Topic: "a"}); err != nil {
		t.Fatal(err)
	}
	d := &deaf{TB: t}
	if box.Deliver(d, nil); d.errors != 1 {
		t.Errorf("%d errors, want 1", d.errors)
	}
}
