package e2e

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// writeUntil writes an order every few milliseconds until stop is closed.
func (s *scene) writeUntil(stop <-chan struct{}) (written *atomic.Int32, ended chan struct{}) {
	written, ended = &atomic.Int32{}, make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; isOpen(stop); n++ {
			<-time.After(3 * time.Millisecond)
			if err := s.order(s.t.Context(), n%50, n/50+1, true); err != nil {
				s.t.Error(err)
				return
			}
			written.Add(1)
		}
	}()
	return written, ended
}

// A single relay is killed and restarted ten times under load. The restarted relay delivers
// messages long before the leases of its predecessor end. The test logs the time until the first
// delivery.
func TestRestartedRelayDeliversBeforeItsOldLeasesEnd(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ target, claim, name string }{
		{"postgres15/pgx", "lanes", ""}, {"postgres15/pgx", "lanes", "shop"}, {"postgres15/pgx", "rows", ""},
		{"mysql/gosql", "lanes", ""}, {"mariadb1011/gosql", "rows", "shop"}, {"sqlite/modernc", "lanes", ""},
	} {
		t.Run(test.target+" "+test.claim+" "+test.name, func(t *testing.T) {
			t.Parallel()
			const lease = 10 * time.Minute
			s, e := newScene(t, test.target), newEndpoint(t)
			start := func(i int) *process {
				arguments := []string{"--lease", lease.String(), "--batch", fmt.Sprint(killedBatch), "--workers", "2", "--claim", test.claim}
				if test.name != "" {
					arguments = append(arguments, "--name", test.name)
				}
				path := fmt.Sprint("/relay-", i)
				return s.relay(path, e.URL+path, arguments...)
			}
			first := func(p *process) (at time.Time) {
				eventually(t, p.name+" delivers", func() bool {
					for _, a := range e.received() {
						if a.from == p.name {
							at = a.at
							return true
						}
					}
					return false
				})
				return at
			}
			stop := make(chan struct{})
			written, ended := s.writeUntil(stop)
			var kills []*kill
			var slowest time.Duration
			p := start(0)
			first(p)
			for i := range 10 {
				<-time.After(200 * time.Millisecond)
				p.kill()
				kills = append(kills, &kill{from: p.name, at: time.Now()})
				began := time.Now()
				p = start(i + 1)
				slowest = max(slowest, first(p).Sub(began))
			}
			close(stop)
			<-ended
			s.settled()
			judged := judge
			if test.claim == "rows" {
				judged = tally
			}
			v := judged(t, e.received())
			if want := int(written.Load()); v.distinct != want {
				t.Errorf("%d distinct messages arrived of %d", v.distinct, want)
			}
			judgeDuplicates(t, v.duplicates, kills)
			t.Logf("with a lease of %v it delivered at most %v after it was started again", lease, slowest.Round(time.Millisecond))
		})
	}
}

// Two relays have the same name at the same time. The second one gets all lanes immediately, and
// the first one is fenced. Nothing is lost or out of order. When the second one has stopped, the
// first one continues.
func TestSecondRelayOfANameFencesTheFirst(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"postgres15/pgx", "sqlite/modernc"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s, e := newScene(t, target), newEndpoint(t)
			stop := make(chan struct{})
			written, ended := s.writeUntil(stop)
			comesFrom := func(path string) {
				eventually(t, "only "+path+" sends", func() bool {
					froms := map[string]bool{}
					for _, a := range e.received() {
						if a.at.After(time.Now().Add(-time.Second)) {
							froms[a.from] = true
						}
					}
					return len(froms) == 1 && froms[path]
				})
			}
			start := func(path string) *process {
				return s.relay(path, e.URL+path, "--name", "shop", "--batch", fmt.Sprint(killedBatch), "--workers", "2")
			}
			start("/a")
			comesFrom("/a")
			fault(t, proof.RelaySuperseded, "/a")
			fenced := &kill{from: "/a", at: time.Now()}
			b := start("/b")
			comesFrom("/b")
			stopping := time.Now()
			b.stop(t)
			comesFrom("/a")
			close(stop)
			<-ended
			s.settled()
			v := judge(t, e.received())
			if want := int(written.Load()); v.distinct != want {
				t.Errorf("%d distinct messages arrived of %d", v.distinct, want)
			}
			for i, d := range v.duplicates { // messages that the fenced relay had in flight may arrive after the other relay's messages
				if d.first.from == "/b" && d.again.from == "/a" && d.again.at.Before(stopping) {
					v.duplicates[i].first, v.duplicates[i].again = d.again, d.first
				}
			}
			explainDuplicates(t, v.duplicates, []*kill{fenced}) // the fenced relay sent these before it noticed the fence
			if parked := s.status().Counts[storage.StateError]; parked > 0 {
				t.Errorf("%d messages were parked", parked)
			}
		})
	}
}
