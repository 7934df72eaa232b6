package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// kill is the death of a relay, or the loss of its leases. After a kill, other relays send the
// messages again that the relay had sent but not settled.
type kill struct {
	from   string // the path that only the killed process has used
	at     time.Time
	served time.Duration // the time until the relay's lanes had other owners
}

// lostLeases returns a kill for each time that a relay logged that it could not renew its leases.
// With a slow machine or disk, leases are lost without a kill.
func (s *scene) lostLeases() (lost []*kill) {
	s.t.Helper()
	for _, p := range s.processes {
		lost = append(lost, lostLeases(s.t, p.name, p.log.String())...)
	}
	s.t.Logf("leases were lost %d times without a kill", len(lost))
	return lost
}

func lostLeases(t testing.TB, relay, log string) (lost []*kill) {
	t.Helper()
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "the leases were not renewed in time") {
			continue
		}
		when, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		at, err := time.Parse(time.RFC3339Nano, when)
		check(t, err)
		lost = append(lost, &kill{from: relay, at: at})
	}
	return lost
}

func TestLostLeasesExplainDuplicates(t *testing.T) {
	t.Parallel()
	kills := lostLeases(t, "/relay-46", `time=2026-11-22T08:09:07.100Z level=INFO msg=relaying source=outbox
time=2026-11-22T08:09:12.684Z level=WARN msg="relay: the leases were not renewed in time; sending stops" source=outbox
time=2026-11-22T08:09:14.024Z level=WARN msg="relay: settlements rejected: lease lost" source=outbox rows=19
`)
	kills = append(kills, &kill{from: "/relay-46", at: time.Date(2026, 11, 22, 8, 9, 15, 0, time.UTC)})
	for after, want := range map[time.Duration]*kill{0: nil, 12684 * time.Millisecond: kills[0], 14 * time.Second: kills[0], 16 * time.Second: kills[1]} {
		if k := lastKill(kills, "/relay-46", time.Date(2026, 11, 22, 8, 9, 0, 0, time.UTC).Add(after)); k != want {
			t.Errorf("the last kill before %v is %+v, want %+v", after, k, want)
		}
	}
	if k := lastKill(kills, "/relay-47", time.Now()); k != nil {
		t.Errorf("a relay that was not killed has the kill %+v", k)
	}
}

// judgeDuplicates checks that each duplicate follows from a kill: the last or the first relay
// that had sent the message was killed before the message arrived again. A dead relay's request
// may still arrive after the relay's death, because the endpoint may read it late. No kill may
// cause more duplicates than a relay can have unsettled messages.
func judgeDuplicates(t testing.TB, duplicates []duplicate, kills []*kill) {
	t.Helper()
	if most := explainDuplicates(t, duplicates, kills); most > mostUnsettled(killedBatch) {
		t.Errorf("one kill caused %d duplicates, more than the %d messages that may be unsettled", most, mostUnsettled(killedBatch))
	}
}

// mostUnsettled returns how many unsettled messages a relay with two workers may have sent: half of
// its default buffer of eight batches per worker if it claims by lanes (see Buffer in
// relay.SinkOptions), or the whole buffer of four batches per worker if it claims by rows.
func mostUnsettled(batch int) int { return 2 * 8 * batch / 2 }

// explainDuplicates checks that each duplicate comes from a relay that was killed before, and
// returns the largest number of duplicates after one kill.
func explainDuplicates(t testing.TB, duplicates []duplicate, kills []*kill) (most int) {
	t.Helper()
	caused := map[*kill]int{}
	for _, d := range duplicates {
		from := d.before.from
		if lastKill(kills, from, d.again.at) == nil {
			from = d.first.from
		}
		k := lastKill(kills, from, d.again.at)
		for k != nil && caused[k] == mostUnsettled(killedBatch) { // the relay lost its leases before it was killed
			earlier := lastKill(kills, from, k.at.Add(-1))
			if earlier == nil {
				break
			}
			k = earlier
		}
		if k == nil {
			t.Errorf("message %s arrived twice, from %s at %v and %s at %v, and no kill explains it: %+v",
				d.first.id, d.first.from, d.first.at, d.again.from, d.again.at, killOf(kills, d.first.from))
			continue
		}
		caused[k]++
		most = max(most, caused[k])
	}
	t.Logf("%d kills, %d duplicates, at most %d because of one kill", len(kills), len(duplicates), most)
	return most
}

// lastKill returns the last kill of the relay before the given time.
func lastKill(kills []*kill, from string, before time.Time) (last *kill) {
	for _, k := range kills {
		if k.from == from && !before.Before(k.at) && (last == nil || last.at.Before(k.at)) {
			last = k
		}
	}
	return last
}

func killOf(kills []*kill, from string) *kill {
	for _, k := range kills {
		if k.from == from {
			return k
		}
	}
	return nil
}

// judgeTakeovers checks that a dead relay's lanes had new owners in time.
func judgeTakeovers(t testing.TB, kills []*kill, lease time.Duration) {
	t.Helper()
	var slowest time.Duration
	for _, k := range kills {
		slowest = max(slowest, k.served)
	}
	if limit := lease + 5*time.Second; slowest > limit && *long { // a short run has no limit on this time
		t.Errorf("other relays took over a dead relay's lanes only after %v, want at most %v", slowest, limit)
	}
	t.Logf("other relays took over a dead relay's lanes after at most %v, with a lease of %v", slowest.Round(time.Millisecond), lease)
}

// Messages that arrive three times are explained by two kills.
func TestTwoKillsExplainTwoRepetitions(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 22, 8, 9, 0, 0, time.UTC)
	kills := []*kill{{from: "/1", at: began.Add(time.Second)}, {from: "/2", at: began.Add(3 * time.Second)}}
	var arrivals []arrival
	for i, from := range []string{"/1", "/2", "/3"} {
		for n := range mostUnsettled(killedBatch) {
			arrivals = append(arrivals, arrival{from: from, id: fmt.Sprint(n), number: n + 1, at: began.Add(time.Duration(2*i) * time.Second)})
		}
	}
	if most := explainDuplicates(t, counted(t, arrivals).duplicates, kills); most != mostUnsettled(killedBatch) {
		t.Errorf("one kill caused %d duplicates, want %d", most, mostUnsettled(killedBatch))
	}
}
