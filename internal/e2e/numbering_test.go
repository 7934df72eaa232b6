package e2e

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// anew lists ways to reset the id sequence, by target.
var anew = []struct{ target, name, statement string }{
	{"postgres15/pgx", "RESTART IDENTITY", "TRUNCATE outbox RESTART IDENTITY"},
	{"postgres18/pgx", "setval", "SELECT setval(pg_get_serial_sequence('outbox', 'id'), 1, false)"},
	{"mariadb1011/gosql", "TRUNCATE", "TRUNCATE outbox"},
	{"mysql/gosql", "TRUNCATE", "TRUNCATE outbox"},
	{"sqlite/modernc", "sqlite_sequence", "DELETE FROM sqlite_sequence WHERE name = 'outbox'"},
}

const anewCustomers = 20

// The id sequence is reset while no relay is alive. The next drain delivers all messages that are
// written after the reset. A drain that claims by lanes delivers them in order.
func TestIDSequenceResetBeforeADrain(t *testing.T) {
	t.Parallel()
	eachReset(t, func(t *testing.T, s *scene, e *endpoint, claim storage.Claim, statement string) {
		s.writeOrders(1500, 1)
		if err := s.drain(e, "--claim", string(claim)); err != nil {
			t.Fatalf("the first drain: %v", err)
		}
		s.resetSequence(statement)
		s.writeOrders(1000, 10_000)
		err := s.drain(e, "--claim", string(claim))
		if left := s.left(); err == nil && left > 0 {
			t.Errorf("the drain ended well, and %d messages wait that could be delivered", left)
		} else if err != nil {
			t.Errorf("the drain of the messages with low ids: %v", err)
		}
		s.judgeAnew(e, claim == storage.ByLanes, 2500)
	})
}

// eachReset calls the function play for several ways to reset the id sequence, each with both claim modes.
func eachReset(t *testing.T, play func(t *testing.T, s *scene, e *endpoint, claim storage.Claim, statement string)) {
	for _, way := range drawn(anew...) {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			t.Run(fmt.Sprintf("%s/%s/%s", way.target, way.name, claim), func(t *testing.T) {
				t.Parallel()
				play(t, newScene(t, way.target), newEndpoint(t), claim, way.statement)
			})
		}
	}
}

// The id sequence is reset while a relay is alive. Each message that is written after the reset
// arrives once and is settled. If the relay claims by lanes and notices the reset immediately, the
// messages arrive in order. On MySQL and MariaDB it doesn't notice the reset: it treats the highest
// id of all rows, even delivered ones, as the last assigned id, and only a sweep finds the new rows.
func TestIDSequenceResetUnderARelay(t *testing.T) {
	t.Parallel()
	eachReset(t, func(t *testing.T, s *scene, e *endpoint, claim storage.Claim, statement string) {
		p := s.relay("relay", e.URL+"/relay", "--claim", string(claim))
		s.writeOrders(500, 1)
		s.settled()
		s.resetSequence(statement)
		told := func() bool { return strings.Contains(p.log.String(), "id sequence was reset") }
		inOrder := claim == storage.ByLanes && s.Kind != testdb.MySQL && s.Kind != testdb.MariaDB
		if inOrder && !comesTrue(patience(), told) {
			t.Error("the relay doesn't log that the id sequence was reset")
		}
		s.writeOrders(1000, 10_000)
		eventually(t, "the messages are delivered", func() bool { return s.left() == 0 })
		s.writeOrders(100, 20_000)
		if !comesTrue(patience(), func() bool { return s.left() == 0 }) {
			t.Errorf("%d messages are not marked", s.left())
		}
		if v := s.judgeAnew(e, inOrder, 1600); len(v.duplicates) > 0 {
			t.Errorf("%d messages arrived again, though no relay died", len(v.duplicates))
		}
	})
}

// writeOrders writes messages, a hundred per transaction.
func (s *scene) writeOrders(count, number int) {
	s.t.Helper()
	for n := 0; n < count; n += 100 {
		by := n
		check(s.t, s.orders(s.t.Context(), min(100, count-n), func() int { by++; return by % anewCustomers }, number+n, true))
	}
}

// resetSequence runs a statement that resets the id sequence, and checks that the sequence was reset.
func (s *scene) resetSequence(statement string) {
	s.t.Helper()
	_, err := s.DB.ExecContext(s.t.Context(), statement)
	check(s.t, err)
	id, err := s.nextID(9_999)
	check(s.t, err)
	if id != 2 {
		s.t.Fatalf("the next id is %d, want 2", id)
	}
}

// drain runs "rowrelay run --drain" and waits for its end.
func (s *scene) drain(e *endpoint, arguments ...string) error {
	s.t.Helper()
	p := s.relay("drain", e.URL+"/drain", append([]string{"--drain", "--drain-limit", "10m"}, arguments...)...)
	select {
	case <-p.exited:
	case <-time.After(patience()):
		s.t.Fatal("the drain doesn't end")
	}
	if p.err != nil {
		return fmt.Errorf("%w: %s", p.err, p.log)
	}
	return nil
}

// left counts the rows that could be delivered.
func (s *scene) left() (n int) {
	s.t.Helper()
	check(s.t, s.DB.QueryRowContext(s.t.Context(), "SELECT count(*) FROM outbox_messages WHERE state IN ('pending', 'claimed', 'retry')").Scan(&n))
	return n
}

func (s *scene) judgeAnew(e *endpoint, inOrder bool, want int) verdict {
	s.t.Helper()
	arrivals := e.received()
	judged := tally
	if inOrder {
		judged = judge
	}
	v := judged(s.t, arrivals)
	s.t.Logf("%d of %d messages arrived, %d times again", v.distinct, want, len(arrivals)-v.distinct)
	if v.distinct != want {
		s.t.Errorf("%d messages of %d arrived", v.distinct, want)
	}
	if done := s.status().Counts[storage.StateDone]; int(done) != want {
		s.t.Errorf("the table keeps %d delivered messages, want %d", done, want)
	}
	return v
}

// The owner of a sequence has given it a cache, so each connection takes fifty ids at a time, and
// later messages may have lower ids. No message is lost, or both the command check and the relay
// report the cache.
func TestSequenceWithACache(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"postgres15/pgx", "postgres18/pq"} {
		for _, claim := range []string{"lanes", "rows"} {
			t.Run(target+"/"+claim, func(t *testing.T) {
				t.Parallel()
				s, e := newScene(t, target), newEndpoint(t)
				_, err := s.DB.ExecContext(t.Context(), "ALTER TABLE outbox ALTER COLUMN id SET CACHE 50")
				check(t, err)
				checked := s.start("check", "check", "--database", s.URL, "--claim", claim)
				<-checked.exited
				running := s.relay("relay", e.URL+"/relay", "--claim", claim)
				s.writeInTurns(4, 60)
				found := checked.err != nil && strings.Contains(checked.log.String(), "CACHE")
				refused := func() bool {
					return found && !isOpen(running.exited) && strings.Contains(running.log.String(), "CACHE")
				}
				eventually(t, "the relay refuses, or delivers all", func() bool { return refused() || s.left() == 0 })
				if refused() {
					return
				}
				v := tally(t, e.received())
				t.Logf("%d of %d messages arrived", v.distinct, s.committed())
				if v.distinct != s.committed() {
					t.Errorf("%d messages of %d arrived; the check failed: %v, and named the cache: %v", v.distinct, s.committed(), checked.err != nil, found)
				}
			})
		}
	}
}

// writeInTurns writes messages from connections that take turns.
func (s *scene) writeInTurns(connections, each int) {
	s.t.Helper()
	all := make([]*sql.Conn, connections)
	for i := range all {
		connection, err := s.DB.Conn(s.t.Context())
		check(s.t, err)
		defer connection.Close()
		all[i] = connection
	}
	for n := range each {
		for by, connection := range all {
			tx, err := connection.BeginTx(s.t.Context(), nil)
			check(s.t, err)
			check(s.t, s.write(s.t.Context(), tx, "orders", by, n+1))
			check(s.t, tx.Commit())
		}
		<-time.After(20 * time.Millisecond) // time for a relay to read in between
	}
}
