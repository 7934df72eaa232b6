package e2e

import (
	"fmt"
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
				p := newPair(t, server, 0, "LD_PRELOAD="+library, "FAKETIME="+shift, "FAKETIME_DONT_FAKE_MONOTONIC=1")
				s := p.scene("clocks")
				s.topology = "a standby with another clock"
				e := newEndpoint(t)
				const relays, batch = 3, 20
				for n := range relays {
					path := fmt.Sprint("/relay-", n+1)
					s.relay(path, e.URL+path, "--lease", "3s", "--batch", fmt.Sprint(batch), "--workers", "2")
				}
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
				s.writeOrders(2000, 4001)
				s.settled()
				arrivals := e.received()
				v := judge(t, arrivals)
				if want := s.committed(); v.distinct != want {
					t.Errorf("%d distinct messages arrived of %d committed orders", v.distinct, want)
				}
				if most := relays * mostUnsettled(batch); len(v.duplicates) > most {
					t.Errorf("%d duplicates, more than the %d messages that may have been in flight", len(v.duplicates), most)
				}
				var pause time.Duration
				for i, a := range arrivals {
					if i > 0 && a.at.After(began) {
						pause = max(pause, a.at.Sub(arrivals[i-1].at))
					}
				}
				t.Logf("%d messages, %d duplicates; no message arrived for %v at most", v.distinct, len(v.duplicates), pause.Round(time.Millisecond))
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
