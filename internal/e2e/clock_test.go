package e2e

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// The standby's clock is ahead of the primary's or behind it by five minutes. After a failover nothing is lost, and the order
// is kept. With a clock that is ahead, all leases have expired for the new primary, so messages in flight may be sent again. With a
// clock that is behind, the leases of relays that are alive are renewed as usual.
func TestFailoverToAnotherClock(t *testing.T) {
	t.Parallel()
	library := os.Getenv("ROWRELAY_TEST_FAKETIME")
	if library == "" {
		t.Skip("only with ROWRELAY_TEST_FAKETIME=$(deploy/servers/servers words faketime)")
	}
	for server := range pairs {
		for _, skew := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
			t.Run(fmt.Sprint(server, " ", skew), func(t *testing.T) {
				t.Parallel()
				shift := fmt.Sprintf("%+ds", int(skew.Seconds()))
				p := newPair(t, server, 0, "LD_PRELOAD="+library, "FAKETIME="+shift, "FAKETIME_DONT_FAKE_MONOTONIC=1",
					"FAKETIME_FORCE_MONOTONIC_FIX=0") // otherwise the library makes MySQL's timed waits return immediately, so that an idle server uses a third of a CPU
				s := p.scene("clocks")
				s.topology, s.clockJumps = "a standby with another clock", true
				e := newEndpoint(t)
				e.answering(func(*http.Request) int { <-time.After(time.Millisecond); return http.StatusOK }) // so that messages wait during the failover
				const relays = 3
				for n := range relays {
					path := fmt.Sprint("/relay-", n+1)
					s.relay(path, e.URL+path, "--lease", "3s", "--batch", "20", "--workers", "2")
				}
				eventually(t, "all relays have lanes", func() bool {
					return s.number("SELECT count(DISTINCT owner) FROM outbox_lanes WHERE owner IS NOT NULL AND owner <> ''") == relays
				})
				s.writeOrders(4000, 1)
				eventually(t, "the first messages have arrived", func() bool { return len(e.received()) > 200 })
				p.caughtUp()
				s.DB.SetMaxIdleConns(0) // no later call uses a connection to the old primary
				fault(t, proof.ClockJump, "")
				began := time.Now()
				p.failOver()
				at := p.skewOf()
				if off := at - skew; off < -time.Minute || off > time.Minute {
					t.Fatalf("the new primary's clock is off by %v, want %v", at, skew)
				}
				for number := 4001; time.Since(began) < lasting(2*time.Second, 20*time.Second); number += 100 { // for several leases
					s.writeOrders(100, number)
					<-time.After(100 * time.Millisecond)
				}
				s.settled()
				arrivals := e.received()
				v := judge(t, arrivals)
				if want := s.committed(); v.distinct != want {
					t.Errorf("%d distinct messages arrived of %d committed orders", v.distinct, want)
				}
				var pause time.Duration
				for i, a := range arrivals {
					if i > 0 && a.at.After(began) {
						pause = max(pause, a.at.Sub(arrivals[i-1].at))
					}
				}
				t.Logf("%d messages, %d duplicates; no message arrived for %v at most, and leases were lost %d times", v.distinct, len(v.duplicates),
					pause.Round(time.Millisecond), len(s.lostLeases()))
			})
		}
	}
}

// skewOf returns how far the standby's clock is ahead of the test's.
func (p *pair) skewOf() time.Duration {
	p.t.Helper()
	var seconds float64
	query := map[string]string{testdb.Postgres: "SELECT extract(epoch FROM clock_timestamp())::float8"}[p.standby.kind]
	if query == "" {
		query = "SELECT UNIX_TIMESTAMP(SYSDATE(6))"
	}
	check(p.t, p.standby.open(p.standby.address(), "", "").QueryRow(query).Scan(&seconds))
	return time.Duration((seconds - float64(time.Now().UnixNano())/1e9) * float64(time.Second))
}
