package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const holding = `
sources:
  main: {database: %s, lease: 3s}
sinks:
  orders: {type: http, url: "%s/relay", on_park: hold, judge_alone_after: 0s}
routes:
  - {topic: "*", sink: orders}
`

// configured writes a relay's configuration, and returns its path and a function that starts a
// relay with it.
func (s *scene) configured(e *endpoint, text string) (file string, start func(name string) *process) {
	s.t.Helper()
	file = filepath.Join(s.t.TempDir(), "rowrelay.yaml")
	check(s.t, os.WriteFile(file, fmt.Appendf(nil, text, s.URL, e.URL), 0o600))
	return file, func(name string) *process { return s.start(name, "run", "--config", file) }
}

// operate runs an operator's command.
func (s *scene) operate(arguments ...string) {
	s.t.Helper()
	if out, err := exec.CommandContext(s.t.Context(), binary, arguments...).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v\n%s", arguments, err, out)
	}
}

// The sink has rejected messages of three keys, and these messages hold their keys, even when
// another relay takes over. An operator requeues the first message, skips the second and discards
// the third. Each key continues in order.
func TestParkedMessagesHoldTheirKeys(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"postgres15/pgx", "mysql/gosql"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s, e := newScene(t, target), newEndpoint(t)
			e.answering(func(r *http.Request) int {
				switch r.Header.Get("Rowrelay-Key") {
				case "customer-1", "customer-2", "customer-3":
					return http.StatusUnprocessableEntity
				}
				return http.StatusOK
			})
			s.unrecorded = "an operator discards messages"
			file, start := s.configured(e, holding)
			for n := range 200 {
				check(t, s.order(t.Context(), n%10, n+1, true))
			}
			first := start("first")
			eventually(t, "three keys are held", func() bool { return s.status().HeldKeys == 3 })
			first.kill()
			for n := range 100 {
				check(t, s.order(t.Context(), n%10, n+201, true))
			}
			start("second")
			eventually(t, "the other keys continue", func() bool { return len(firsts(e.received())) == 7*30 })
			e.answering(nil)
			if status := s.status(); status.HeldKeys != 3 || status.Counts[storage.StateError] != 3 {
				t.Errorf("%d keys are held, and the states are %v; want that 3 are by 3", status.HeldKeys, status.Counts)
			}
			s.operate("messages", "requeue", "--config", file, "--key", "customer-1")
			s.operate("messages", "skip", "--yes", "--config", file, "--key", "customer-2")
			s.operate("messages", "discard", "--yes", "--config", file, "--key", "customer-3")
			s.settled()
			if v := judge(t, e.received()); v.distinct != 298 {
				t.Errorf("%d distinct messages arrived, want 298", v.distinct)
			}
			if status := s.status(); status.HeldKeys != 0 || status.Counts[storage.StateError] != 1 {
				t.Errorf("%d keys are held, and the states are %v; want that one message is parked", status.HeldKeys, status.Counts)
			}
		})
	}
}

const expiring = `
sources:
  main: {database: %s}
sinks:
  orders: {type: http, url: "%s/relay", breaker_backoff: {max: 1s}}
routes:
  - {topic: quotes, sink: orders, expire_after: 1s, on_expire: discard}
  - {topic: "*", sink: orders}
`

// While the sink is down, all quotes expire, and so do the orders that have an expiry. When the
// sink is back, no expired message is sent, and all others are sent in order. Expired orders are
// parked, and are sent when an operator requeues them.
func TestMessagesThatExpireInAnOutageAreNotSent(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"postgres15/pgx", "mariadb1011/gosql"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s, e := newScene(t, target), newEndpoint(t)
			e.answering(always(http.StatusServiceUnavailable))
			file, start := s.configured(e, expiring)
			start("relay")
			soon := time.Now().Add(time.Second)
			for n := range 100 {
				m := orderMessage("orders", n%10, n+1)
				if n%2 == 1 {
					m.ExpiresAt = soon
				}
				check(t, s.writer.Write(t.Context(), outbox.WithoutTransaction(s.DB), m))
				check(t, s.writer.Write(t.Context(), outbox.WithoutTransaction(s.DB), orderMessage("quotes", 10+n%10, n+1)))
			}
			<-time.After(2 * time.Second) // by then the last quote has expired, however slow the writes were
			e.answering(nil)
			s.settled()
			if v := judge(t, e.received()); v.distinct != 50 || len(v.duplicates) > 0 {
				t.Errorf("%d distinct messages and %d duplicates arrived, want 50", v.distinct, len(v.duplicates))
			}
			expired, err := s.store.List(context.Background(), storage.Filter{State: storage.StateError, Error: storage.Expired})
			check(t, err)
			if counts := s.status().Counts; len(expired) != 50 || counts[storage.StateDone] != 50 {
				t.Errorf("%d are parked as expired, and the states are %v; want 50 and 50 done", len(expired), counts)
			}
			s.operate("messages", "requeue", "--config", file, "--all")
			s.settled()
			if v := tally(t, e.received()); v.distinct != 100 || len(v.duplicates) > 0 {
				t.Errorf("after the requeue %d distinct messages and %d duplicates have arrived, want 100", v.distinct, len(v.duplicates))
			}
		})
	}
}
