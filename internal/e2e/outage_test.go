package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestLateCommitIsDelivered(t *testing.T) {
	t.Parallel()
	s, e := newScene(t, "postgres18/pgx"), newEndpoint(t)
	s.relay("relay", e.URL+"/relay", "--batch", "500")
	ctx := context.Background()
	late, err := s.DB.BeginTx(ctx, nil)
	check(t, err)
	defer late.Rollback()
	check(t, s.write(ctx, late, "orders", 1, 1))
	opened, open := time.Now(), lasting(5*time.Second, 2*time.Minute)
	later := int(lasting(10_000, 100_000))
	for n := 0; n < later; n += 1000 {
		tx, err := s.DB.BeginTx(ctx, nil)
		check(t, err)
		for i := range 1000 {
			check(t, s.write(ctx, tx, "orders", 2+i%20, n+i+1))
		}
		check(t, tx.Commit())
	}
	eventually(t, "all later messages are delivered", func() bool { return len(e.received()) == later })
	<-time.After(time.Until(opened.Add(open)))
	if n := len(e.received()); n != later {
		t.Errorf("%d messages arrived before the late commit, want %d", n, later)
	}
	committed := time.Now()
	check(t, late.Commit())
	check(t, s.order(ctx, 1, 2, true))
	eventually(t, "the late message is delivered", func() bool { return len(e.received()) == later+2 })
	v := judge(t, e.received())
	if len(v.duplicates) > 0 || v.distinct != later+2 {
		t.Errorf("%d distinct messages and %d duplicates", v.distinct, len(v.duplicates))
	}
	t.Logf("%d later messages passed; open for %v; delivered %v after its commit", later, committed.Sub(opened).Round(time.Second), time.Since(committed).Round(time.Millisecond))
}

func TestEndpointThatIsDownCostsNoAttempts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ down, keys int }{
		{http.StatusServiceUnavailable, 10}, {http.StatusTooManyRequests, 10}, {0, 10}, {http.StatusInternalServerError, 1}, {http.StatusUnprocessableEntity, 1},
	} {
		t.Run(fmt.Sprintf("%d, keys %d", c.down, c.keys), func(t *testing.T) {
			t.Parallel()
			s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
			url := e.URL
			if c.down == 0 { // no server is listening
				url = "http://127.0.0.1:9"
			}
			e.answering(always(c.down))
			p := s.relay("relay", url+"/relay")
			for n := range 300 {
				check(t, s.order(t.Context(), n%c.keys, n+1, true))
			}
			<-time.After(lasting(3*time.Second, 10*time.Minute))
			counts := s.status().Counts
			if counts[storage.StatePending] != 300 || counts[storage.StateError] != 0 || counts[storage.StateRetry] != 0 {
				t.Errorf("during the outage: %v, want 300 pending", counts)
			}
			if c.down == 0 {
				p.stop(t)
				s.relay("relay", e.URL+"/relay")
			}
			e.answering(nil)
			s.settled()
			if v := judge(t, e.received()); v.distinct != 300 || len(v.duplicates) > 0 {
				t.Errorf("%d distinct messages and %d duplicates, want 300", v.distinct, len(v.duplicates))
			}
			for _, a := range e.received() {
				if a.attempt != "1" {
					t.Fatalf("message %s was charged: attempt %s", a.id, a.attempt)
				}
			}
		})
	}
}

func TestFailingKeyDelaysNoOtherKey(t *testing.T) {
	t.Parallel()
	s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
	fail := func(r *http.Request) int {
		if r.Header.Get("Rowrelay-Key") == "customer-3" {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	}
	e.answering(fail)
	s.relay("relay", e.URL+"/relay")
	for n := range 500 {
		check(t, s.order(t.Context(), n%10, n+1, true))
	}
	eventually(t, "the other keys are delivered", func() bool { return len(e.received()) == 450 })
	e.answering(nil)
	s.settled()
	if v := judge(t, e.received()); v.distinct != 500 || len(v.duplicates) > 0 {
		t.Errorf("%d distinct messages and %d duplicates, want 500", v.distinct, len(v.duplicates))
	}
}

const twoSinks = `
sources:
  main:
    database: %s
sinks:
  up:   {type: http, url: "%s/up"}
  down: {type: http, url: "http://127.0.0.1:9/down"}
routes:
  - {topic: up, sink: up}
  - {topic: down, sink: down}
`

func TestSinkThatIsDownDoesNotDelayAnother(t *testing.T) {
	t.Parallel()
	s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
	file := filepath.Join(t.TempDir(), "rowrelay.yaml")
	check(t, os.WriteFile(file, fmt.Appendf(nil, twoSinks, s.URL, e.URL), 0o600))
	p := s.start("first", "run", "--config", file)

	var (
		written atomic.Int64
		writers sync.WaitGroup
	)
	rate := func(topic string, perSecond int, stop chan struct{}) {
		tick := time.NewTicker(time.Second / 20)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				tx, err := s.DB.Begin()
				if err != nil {
					return
				}
				for range perSecond / 20 {
					n := int(written.Add(1))
					if err := s.write(context.Background(), tx, topic, rand.IntN(50)+map[string]int{"up": 0, "down": 100}[topic], n); err != nil {
						t.Error(err)
					}
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	stop := make(chan struct{})
	defer writers.Wait()
	defer close(stop)
	writers.Go(func() { rate("up", 100, stop) })
	<-time.After(lasting(5*time.Second, 30*time.Second))
	eventually(t, "the sink that is up is served", func() bool { return len(s.lags(t)) > 0 })
	before := quantiles(s.lags(t))
	// served returns the lag of the sink that is up. A short run permits a long lag and waits for
	// it, because the machine may be slow.
	served := func(when string) (lag [2]time.Duration) {
		may := func() bool {
			lag = quantiles(s.lags(t))
			return lag[0] <= before[0]+lasting(10*time.Second, 500*time.Millisecond)
		}
		if !comesTrue(lasting(10*time.Minute, time.Second), may) { // if the outage delayed the sink that is up, it would get no messages
			t.Errorf("the lag %s the outage is %v, it was %v", when, lag[0], before[0])
		}
		return lag
	}
	memory := p.resident(t)
	writers.Go(func() { rate("down", 1000, stop) })
	<-time.After(lasting(10*time.Second, 10*time.Minute))
	during, memoryDuring := served("during"), p.resident(t)
	p.kill()
	p = s.start("second", "run", "--config", file)
	<-time.After(lasting(25*time.Second, 40*time.Second))
	after, memoryAfter := served("after"), p.resident(t)
	t.Logf("lag of the sink that is up (p50, p99): before %v, while the other is down %v, after a takeover %v", before, during, after)
	t.Logf("memory: %d, %d, %d MiB; %d rows pending", memory, memoryDuring, memoryAfter, s.status().Counts[storage.StatePending])
	if limit := memory + 40; memoryDuring > limit || memoryAfter > limit {
		t.Errorf("memory grew from %d to %d and %d MiB", memory, memoryDuring, memoryAfter)
	}
}

// lags returns the times from the write to the delivery of the messages that were delivered in the
// last five seconds on the database's clock.
func (s *scene) lags(t testing.TB) (lags []time.Duration) {
	t.Helper()
	rows, err := s.DB.Query("SELECT extract(epoch FROM finished_at - created_at)::float8 FROM outbox_done WHERE finished_at > now() - interval '5 seconds' AND topic = 'up'")
	check(t, err)
	defer rows.Close()
	for rows.Next() {
		var seconds float64
		check(t, rows.Scan(&seconds))
		lags = append(lags, time.Duration(seconds*float64(time.Second)))
	}
	check(t, rows.Err())
	return lags
}

// quantiles returns the median and the 99th percentile.
func quantiles(lags []time.Duration) (q [2]time.Duration) {
	if len(lags) == 0 {
		return [2]time.Duration{time.Hour, time.Hour}
	}
	slices.Sort(lags)
	at := func(share float64) time.Duration {
		return lags[int(share*float64(len(lags)-1))].Round(time.Millisecond)
	}
	return [2]time.Duration{at(0.5), at(0.99)}
}
