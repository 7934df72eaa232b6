package e2e

import (
	"fmt"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Three relays obey a pause that the command line sets. All of them stop sending to the sink, and
// continue when it is resumed. Even after the relays were killed and restarted, the sink is still
// paused. The test logs how long the relays took to obey; a test of the engine, with a fake clock,
// limits that time.
func TestAPauseHoldsForAllRelays(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"postgres15/pgx", "mysql/gosql"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s, e := newScene(t, target), newEndpoint(t)
			say := func(arguments ...string) (took time.Time) {
				if out, err := exec.CommandContext(t.Context(), binary, append(arguments, "--database", s.URL)...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %v\n%s", arguments, err, out)
				}
				return time.Now()
			}
			var relays []*process
			start := func() {
				relays = nil
				for i := range 3 {
					relays = append(relays, s.relay(fmt.Sprint("relay-", i), fmt.Sprint(e.URL, "/relay-", i)))
				}
			}
			var written atomic.Int32
			writing, stopWriting := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(writing)
				for n := 0; ; n++ {
					select {
					case <-stopWriting:
						return
					case <-time.After(5 * time.Millisecond):
					}
					// Each lane has some of the customers, because the third relay gets the lanes
					// with the fewest messages in memory.
					if err := s.order(t.Context(), n%500, n/500+1, true); err != nil {
						t.Error(err)
						return
					}
					written.Add(1)
				}
			}()
			since := func(at time.Time) (senders map[string]int) {
				senders = map[string]int{}
				for _, a := range e.received() {
					if a.at.After(at) {
						senders[a.from]++
					}
				}
				return senders
			}
			start()
			eventually(t, "three relays send", func() bool { return len(since(time.Now().Add(-time.Second))) == 3 })
			paused := say("pause", "sink", "sink", "--by", "ann", "--reason", "maintenance")
			eventually(t, "nothing is sent for two seconds", func() bool { return len(since(time.Now().Add(-2*time.Second))) == 0 })
			arrivals := e.received()
			t.Logf("the last message arrived %v after the pause", arrivals[len(arrivals)-1].at.Sub(paused).Round(time.Millisecond))

			dead := map[string]bool{}
			for _, relay := range s.status().Relays {
				dead[relay.Name] = true
			}
			for _, p := range relays {
				p.kill()
			}
			start()
			eventually(t, "three other relays have all lanes", func() bool {
				alive, lanes := 0, 0
				for _, relay := range s.status().Relays {
					if !dead[relay.Name] && relay.Lanes > 0 {
						alive, lanes = alive+1, lanes+relay.Lanes
					}
				}
				return alive == 3 && lanes == storage.Lanes
			})
			<-time.After(3 * time.Second)
			if again := e.received(); len(again) != len(arrivals) {
				t.Errorf("%d messages arrived though the sink was paused before the relays were started", len(again)-len(arrivals))
			}
			status := s.status()
			if len(status.Controls) != 1 || status.Controls[0].Kind != storage.PauseSink || status.Controls[0].By != "ann" {
				t.Errorf("in force: %v", status.Controls)
			}
			resumed := say("resume", "sink", "sink")
			eventually(t, "three relays send again", func() bool { return len(since(resumed.Add(-time.Second))) == 3 })
			first := map[string]time.Duration{}
			for _, a := range e.received()[len(arrivals):] {
				if _, ok := first[a.from]; !ok {
					first[a.from] = a.at.Sub(resumed).Round(time.Millisecond)
				}
			}
			t.Logf("after the end of the pause the relays sent again within %v", first)
			close(stopWriting)
			<-writing
			s.settled()
			if v := judge(t, e.received()); v.distinct != int(written.Load()) {
				t.Errorf("%d of %d messages arrived", v.distinct, written.Load())
			}
		})
	}
}
