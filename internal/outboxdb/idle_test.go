package outboxdb_test

import (
	"context"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/sinks"
)

// reporting is a listener that reports each wake-up and the error that ended each connection.
type reporting struct {
	relay.Listener
	woken chan struct{}
	ended chan error
}

func (l reporting) Listen(ctx context.Context, wake func()) error {
	err := l.Listener.Listen(ctx, func() {
		wake()
		select {
		case l.woken <- struct{}{}:
		case <-ctx.Done():
		}
	})
	select {
	case l.ended <- err:
	case <-ctx.Done():
	}
	return err
}

// With idle_session_timeout the server repeatedly ends the listener's connection. A relay that
// doesn't poll still delivers new messages, even after the server has ended several connections.
func TestListensAgainAfterIdleSessionTimeout(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		if !db.has(t, "idle_session_timeout") {
			t.Skip("this version has no idle_session_timeout")
		}
		inner, err := relaypgx.NewListener(db.URL+"&idle_session_timeout=1000", relaypgx.ListenerOptions{Patience: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		store, err := sqlstore.Open(t.Context(), db.OpenAnother(t), db.dialect, sqlstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		listener, got := reporting{inner, make(chan struct{}), make(chan error)}, make(chan string, 100)
		startListening(t, store, listener, func(m sinks.Message) { got <- m.ID })
		writer := newWriter(t, db.dialect, outbox.Options{Notify: true})
		for ends := 0; ends < 3; {
			select {
			case <-listener.woken:
			case err := <-listener.ended:
				if ends++; err == nil {
					t.Fatal("the listener returned without an error")
				}
			case <-time.After(5 * time.Minute):
				t.Fatal("the server ends no connection")
			}
		}
		message := outbox.Message{ID: outbox.NewID(), Topic: "t"}
		for written := false; ; { // each connection wakes the relay once when it starts to listen
			select {
			case <-listener.woken:
				if written {
					continue
				}
				written = true
				if err := writer.Write(t.Context(), outbox.WithoutTransaction(db.DB), message); err != nil {
					t.Fatal(err)
				}
			case <-listener.ended:
			case id := <-got:
				if id != message.ID {
					t.Errorf("message %s was delivered, want %s", id, message.ID)
				}
				return
			case <-time.After(5 * time.Minute):
				t.Fatal("the message was not delivered")
			}
		}
	})
}
