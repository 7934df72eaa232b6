package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// placeOrders runs 8 concurrent writers. Each transaction writes several orders (their number is
// the argument orders), and half of the transactions are rolled back. One writer writes all orders
// of a customer, so they are committed in order.
func placeOrders(s *scene, transactions, orders int, over time.Duration) {
	const writers, customers = 8, 80
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			each := transactions / writers
			for n := range each {
				customer := func() int { return w + writers*rand.IntN(customers/writers) }
				if err := s.orders(context.Background(), orders, customer, n*orders+1, n%2 == 0); err != nil {
					s.t.Errorf("write orders: %v", err)
					return
				}
				<-time.After(over / time.Duration(each))
			}
		})
	}
	group.Wait()
}

func TestCommittedOrdersAndNoOthersArriveInOrder(t *testing.T) {
	t.Parallel()
	s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
	for i := range 3 {
		s.relay(fmt.Sprint("relay-", i), fmt.Sprint(e.URL, "/", i))
	}
	placeOrders(s, 10_000, 1, time.Second)
	s.settled()
	v := judge(t, e.received())
	if want := s.committed(); want != 5000 || v.distinct != want {
		t.Errorf("%d distinct messages arrived of %d committed orders, want 5000", v.distinct, want)
	}
	if len(v.duplicates) > 0 {
		t.Errorf("%d messages arrived twice though no relay was killed", len(v.duplicates))
	}
	if parked := s.status().Counts[storage.StateError]; parked > 0 {
		t.Errorf("%d messages were parked", parked)
	}
}

// killedBatch is the batch size of relays that are killed. It is small, so few messages can be in
// flight.
const killedBatch = 20

func TestKilledRelaysLoseNothing(t *testing.T) {
	t.Parallel()
	for _, target := range drawn("postgres15/pgx", "mariadb1011/gosql", "mariadb105/gosql", "mysql/gosql", "sqlite/modernc", "postgres18/pgx") {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			killedRelaysLoseNothing(newScene(t, target), "lanes", judge)
		})
	}
}

// Relays that claim by rows lose nothing either, but they keep no order.
func TestKilledRelaysByRowsLoseNothing(t *testing.T) {
	t.Parallel()
	for _, target := range drawn("postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc", "postgres18/pgx") {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			killedRelaysLoseNothing(newScene(t, target), "rows", tally)
		})
	}
}

func killedRelaysLoseNothing(s *scene, claim string, judge func(testing.TB, []arrival) verdict) {
	const lease = 3 * time.Second
	t, e := s.t, newEndpoint(s.t)
	l := load{transactions: s.manyTransactions(), orders: 1, over: lasting(10*time.Second, time.Minute)}
	if *messages > 0 {
		l = load{transactions: *messages / 10, orders: 20, over: pace()}
	}
	done := make(chan struct{})
	go func() { placeOrders(s, l.transactions, l.orders, l.over); close(done) }()
	kills := killEverySecond(s, func(path string) string { return e.URL + path }, lease, killedBatch, done, "--claim", claim)
	s.settled()
	v := judge(t, e.received())
	if want := s.committed(); want != l.transactions/2*l.orders || v.distinct != want {
		t.Errorf("%d distinct messages arrived of %d committed orders, want %d", v.distinct, want, l.transactions/2*l.orders)
	}
	judgeDuplicates(t, v.duplicates, slices.Concat(kills, s.lostLeases()))
	if claim == "lanes" {
		judgeTakeovers(t, kills, lease)
	}
	if parked := s.status().Counts[storage.StateError]; parked > 0 {
		t.Errorf("%d messages were parked", parked)
	}
}

// manyTransactions returns enough transactions to keep the relays busy for the length of the scene.
// SQLite has fewer, because there each transaction waits for the others, and then for the disk.
func (s *scene) manyTransactions() int {
	switch {
	case *long:
		return 10_000
	case s.Kind == testdb.SQLite:
		return 2_000
	default:
		return 4_000
	}
}

// killEverySecond runs three relays and kills one of them every second (see killInterval) until done is closed. The
// function sink returns the sink's URL for a relay's path.
func killEverySecond(s *scene, sink func(path string) string, lease time.Duration, batch int, done <-chan struct{}, more ...string) []*kill {
	return killInTurns(s, lease, done, func(path string) *process {
		arguments := append([]string{"--lease", lease.String(), "--batch", fmt.Sprint(batch), "--workers", "2"}, more...)
		return s.relay(path, sink(path), arguments...)
	})
}

// killInterval is the time from a kill to the next one. It is longer with -messages and -soak, because relays
// send small batches after a takeover.
func killInterval() time.Duration {
	if *messages > 0 || *soak > 0 {
		return 5 * time.Second
	}
	return time.Second
}

// killInTurns runs three relays, which startAs starts, and kills one of them every second (see killInterval) until
// done is closed.
func killInTurns(s *scene, lease time.Duration, done <-chan struct{}, startAs func(path string) *process) []*kill {
	var (
		kills    []*kill
		watchers sync.WaitGroup
		started  int
		relays   [3]*process
	)
	start := func(i int) {
		started++
		relays[i] = startAs(fmt.Sprint("/relay-", started))
	}
	for i := range relays {
		start(i)
	}
	for isOpen(done) {
		<-time.After(killInterval())
		i := rand.IntN(len(relays))
		owners := s.owned(relays[i].command.Process.Pid)
		k := &kill{from: relays[i].name, at: time.Now()} // taken before the kill, because another relay may notice the death before kill returns
		relays[i].kill()
		kills = append(kills, k)
		watchers.Go(func() { k.served = s.untilTaken(owners, k.at, lease+30*time.Second) })
		start(i)
	}
	watchers.Wait()
	return kills
}

func isOpen(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// fence is a lane and the fence of a relay's lease on it.
type fence struct{ lane, fence int64 }

// owned returns the lanes that the process has leased.
func (s *scene) owned(pid int) (lanes []fence) {
	s.t.Helper()
	rows, err := s.DB.Query(fmt.Sprintf("SELECT lane, fence FROM outbox_lanes WHERE owner LIKE '%%-%d-%%'", pid))
	check(s.t, err)
	defer rows.Close()
	for rows.Next() {
		var f fence
		check(s.t, rows.Scan(&f.lane, &f.fence))
		lanes = append(lanes, f)
	}
	check(s.t, rows.Err())
	return lanes
}

// untilTaken waits until all these lanes have another owner, and returns the time since the kill.
func (s *scene) untilTaken(lanes []fence, since time.Time, limit time.Duration) time.Duration {
	for _, f := range lanes {
		for time.Since(since) < limit {
			var now int64
			if err := s.DB.QueryRow(fmt.Sprint("SELECT fence FROM outbox_lanes WHERE lane = ", f.lane)).Scan(&now); err == nil && now > f.fence {
				break
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	return time.Since(since)
}
