package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var replayed = flag.Int("replayed", 0, "number of delivered messages to replay while new ones are written; 0 for the scene's default")

// firstOld is the lowest customer number of the replayed messages. The customers of new messages
// have lower numbers.
const firstOld = 1000

// Delivered messages are replayed while new ones are written. The replay is killed half-way and
// continued. New messages are hardly delayed, and each copy arrives once, in the order of its key.
// The latency is limited only with -long, because a short run must not fail on a slow machine.
func TestReplayHardlyDelaysNewMessages(t *testing.T) {
	rate, count, replayRate, alone := 100, 500, 50, time.Second
	if *long {
		rate, count, replayRate, alone = 1000, 1_000_000, 2000, 30*time.Second
	}
	if *replayed > 0 {
		count = *replayed
	}
	s, endpoint := newScene(t, "postgres15/pgx"), newEndpoint(t)
	s.deliveredBefore(count)
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{Notify: true}) // without notifications, the poll interval would be most of the latency
	check(t, err)
	s.writer = writer
	s.relay("relay", endpoint.URL)

	const step = 20 * time.Millisecond
	perStep := max(1, int(float64(rate)*step.Seconds()))
	at := map[int]time.Time{}
	next := 1
	// traffic writes messages at the rate until ended returns true, and returns their latency.
	traffic := func(ended func() bool) latency {
		from := next
		for start := time.Now(); !ended(); {
			now := time.Now()
			for n := next; n < next+perStep; n++ {
				at[n] = now
			}
			number := next
			check(t, s.orders(t.Context(), perStep, func() int { number++; return number % 100 }, next, true))
			next += perStep
			<-time.After(time.Until(start.Add(time.Duration((next-from)/perStep) * step)))
		}
		s.settled()
		var all []time.Duration
		for _, a := range endpoint.received() {
			if a.customer < firstOld && a.number >= from {
				all = append(all, a.at.Sub(at[a.number]))
			}
		}
		if len(all) != next-from {
			t.Fatalf("%d of %d new messages have arrived", len(all), next-from)
		}
		slices.Sort(all)
		return latency{all[len(all)/2], all[len(all)*99/100]}
	}
	lasting := func(d time.Duration) func() bool {
		began := time.Now()
		return func() bool { return time.Since(began) > d }
	}
	traffic(lasting(alone)) // not measured, because the processes are still starting
	before := traffic(lasting(alone))

	began, halfway := time.Now(), lasting(time.Duration(count/replayRate/2)*time.Second)
	arguments := []string{"messages", "replay", "old", "--database", s.URL}
	replay := s.start("replay", append(arguments, "--topic", "old", "--rate", strconv.Itoa(replayRate))...)
	killed := false
	beside := traffic(func() bool {
		if !killed && halfway() {
			replay.kill()
			replay, killed = s.start("replay", arguments...), true
		}
		select {
		case <-replay.exited:
			return true
		default:
			return false
		}
	})
	took := time.Since(began)
	if replay.err != nil || !killed {
		t.Fatalf("the replay failed, or was not killed half-way: %v\n%s", replay.err, replay.log)
	}
	after := traffic(lasting(alone))
	t.Logf("latency of new messages, %d per second: %v before the replay, %v during it (%d messages in %v), %v after it",
		rate, before, beside, count, took.Round(time.Second), after)
	if beside.p99 > before.p99+after.p99 && *long {
		t.Errorf("during the replay new messages are more than twice as late as without it")
	}
	copies := 0
	for _, a := range endpoint.received() {
		if a.customer >= firstOld {
			copies++
		}
	}
	if v := judge(t, endpoint.received()); copies != count || len(v.duplicates) != 0 {
		t.Errorf("%d copies of %d messages arrived, and %d duplicates of all messages", copies, count, len(v.duplicates))
	}
}

// latency has the median and the 99th percentile.
type latency struct{ median, p99 time.Duration }

func (l latency) String() string {
	return fmt.Sprintf("%v (p99 %v)", l.median.Round(100*time.Microsecond), l.p99.Round(100*time.Microsecond))
}

// deliveredBefore adds delivered messages with the topic old.
func (s *scene) deliveredBefore(count int) {
	s.t.Helper()
	for _, statement := range []string{
		`INSERT INTO outbox_done (id, lane, message_id, topic, message_key, payload, priority, attempts, crashes, created_at, finished_at)
SELECT i, 0, gen_random_uuid(), 'old', 'customer-' || (1000 + i % 100), convert_to('{"customer":' || (1000 + i % 100) || ',"number":' || i || '}', 'UTF8'), 0, 1, 0, now(), now()
FROM generate_series(1, $1::bigint) AS i`,
		"SELECT setval(pg_get_serial_sequence('outbox', 'id'), $1::bigint)",
	} {
		_, err := s.DB.ExecContext(s.t.Context(), statement, count)
		check(s.t, err)
	}
}

// A replay that was killed continues from its position, so each copy arrives once.
func TestReplaySurvivesKills(t *testing.T) {
	const count, kills = 600, 3
	s, endpoint := newScene(t, "postgres15/pgx"), newEndpoint(t)
	s.deliveredBefore(count)
	s.relay("relay", endpoint.URL)
	arguments := []string{"messages", "replay", "old", "--database", s.URL}
	replay := s.start("replay", append(arguments, "--topic", "old", "--rate", "60")...) // slow enough to be killed before its end
	for kill := range kills {
		eventually(t, "some copies have arrived", func() bool { return len(endpoint.received()) > kill*count/(kills+1) })
		replay.kill()
		replay = s.start("replay", arguments...)
	}
	<-replay.exited
	if replay.err != nil {
		t.Fatalf("the replay failed: %v\n%s", replay.err, replay.log)
	}
	s.settled()
	if v := judge(t, endpoint.received()); v.distinct != count || len(v.duplicates) != 0 {
		t.Errorf("%d of %d messages have arrived, %d of them twice", v.distinct, count, len(v.duplicates))
	}
}
