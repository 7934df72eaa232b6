package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// scheduled is the number of messages that become due when the suspended relays continue.
const scheduled = 100

// Relays that claim by rows are suspended, and meanwhile the table is changed to lanes. When the
// relays continue, scheduled messages have just become due. The relays must not move these messages
// to a position that no relay by lanes will read again.
func TestSuspendedRelaysByRowsAfterAChangeToLanes(t *testing.T) {
	t.Parallel()
	eachRound(t, func(t *testing.T) {
		t.Parallel()
		s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
		var sleepers []*process
		for n := range 8 {
			path := fmt.Sprint("/sleeper-", n)
			sleepers = append(sleepers, s.relay(path, e.URL+path, "--claim", "rows", "--lease", "1s"))
		}
		s.writeOrders(200, 1)
		s.settled()
		due := s.schedule(scheduled, 30*time.Second) // due only after the relays by rows have been suspended
		eventually(t, "the scheduled messages are deferred", func() bool {
			return s.number("SELECT count(*) FROM outbox_held WHERE state = 'scheduled'") == scheduled
		})
		s.putToSleep(sleepers)
		eventually(t, "the relays by rows count as dead", func() bool {
			return s.number("SELECT count(*) FROM outbox_relays WHERE until > now()") == 0
		})
		awake := s.relay("lanes", e.URL+"/lanes")
		s.writeOrders(500, 1000)
		eventually(t, "the relay by lanes has delivered", func() bool { return s.left() == 0 })
		<-time.After(time.Until(due.Add(-300 * time.Millisecond)))
		signalAll(t, syscall.SIGSTOP, awake) // otherwise this relay would sometimes be faster than the suspended relays
		<-time.After(time.Until(due.Add(100 * time.Millisecond)))
		signalAll(t, syscall.SIGCONT, sleepers...)
		<-time.After(time.Second)
		signalAll(t, syscall.SIGCONT, awake)
		if !comesTrue(patience(), func() bool { return s.left() == 0 }) {
			t.Errorf("%d messages wait, and no relay reads them", s.left())
		}
		s.judgeAsleep(e.received(), 700+scheduled)
	})
}

// putToSleep stops processes at a moment when none of them is in a transaction. A transaction would
// hold the lock that a relay by lanes needs to start.
func (s *scene) putToSleep(processes []*process) {
	s.t.Helper()
	eventually(s.t, "the processes are stopped outside of transactions", func() bool {
		signalAll(s.t, syscall.SIGSTOP, processes...)
		busy := s.number(`SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'`)
		if busy > 0 {
			signalAll(s.t, syscall.SIGCONT, processes...)
		}
		return busy == 0
	})
}

// judgeAsleep checks that all messages arrived, and that the relay by lanes delivered the messages
// that became due when the suspended relays continued.
func (s *scene) judgeAsleep(arrivals []arrival, want int) {
	s.t.Helper()
	arrived, stray, lost := map[string]bool{}, 0, 0
	for _, a := range arrivals {
		arrived[a.id] = true
		if a.customer > scheduledCustomers && a.from != "/lanes" {
			stray++
		}
	}
	for id := range s.ids() {
		if !arrived[id] {
			lost++
		}
	}
	s.t.Logf("%d messages of %d arrived, %d never did, %d by a relay that claims by rows", len(arrived), want, lost, stray)
	if lost > 0 || stray > 0 || len(arrived) != want {
		s.t.Errorf("%d messages of %d arrived, %d never did, %d by a relay that claims by rows", len(arrived), want, lost, stray)
	}
}

// scheduledCustomers separates customers: only those with a higher number have scheduled messages.
const scheduledCustomers = 1000

// schedule writes messages that become due after the given time, and returns the time at which they
// are due.
func (s *scene) schedule(count int, after time.Duration) time.Time {
	s.t.Helper()
	due := time.Now().Add(after)
	_, err := s.DB.ExecContext(s.t.Context(), `INSERT INTO outbox (topic, message_key, payload_text, available_at)
		SELECT 'orders', 'late-' || n, format('{"customer":%s,"number":1}', n + $3::int), $2 FROM generate_series(1, $1::int) AS n`, count, due, scheduledCustomers)
	check(s.t, err)
	return due
}

// number returns the count that a query selects.
func (s *scene) number(query string) (n int) {
	s.t.Helper()
	check(s.t, s.DB.QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}

func signalAll(t *testing.T, signal syscall.Signal, processes ...*process) {
	t.Helper()
	for _, p := range processes {
		check(t, p.command.Process.Signal(signal))
	}
}
