package relay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
)

// idler is a Listener whose connection the server ends after ten seconds, as with idle_session_timeout.
type idler struct {
	ended   time.Time
	longest time.Duration // the longest time without a connection
}

func (l *idler) Listen(ctx context.Context, wake func()) error {
	if !l.ended.IsZero() {
		l.longest = max(l.longest, time.Since(l.ended))
	}
	wake()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(10 * time.Second):
	}
	l.ended = time.Now()
	return errors.New("terminating connection due to idle-session timeout")
}

// If a connection worked before it ended, the back-off starts again at its minimum, and the next connection follows soon.
func TestListenerRestartsSoonAfterAConnectionThatWorked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := &idler{}
		_, stop := start(t, memstore.New().Store(), relay.Options{Sinks: to(&recorder{}), Listener: listener, Poll: 30 * time.Second})
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if listener.longest > 500*time.Millisecond {
			t.Errorf("the relay didn't listen for %v", listener.longest)
		}
	})
}
