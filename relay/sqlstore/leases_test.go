package sqlstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// leasing is a relay that holds leases.
type leasing struct {
	*testing.T
	store    *sqlstore.Store
	name     string
	renewals []storage.Renewal
}

// leasingRelay returns a relay that has sent a heartbeat. It requires that the relay could lease count lanes.
func leasingRelay(t *testing.T, table table, name string, count int) *leasing {
	t.Helper()
	l := &leasing{T: t, store: table.open(t), name: name}
	if _, err := l.store.Heartbeat(t.Context(), storage.Identity{Name: name, Claim: storage.ByLanes}, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, grant := range l.acquire() {
		l.renewals = append(l.renewals, storage.Renewal{Lease: grant.Lease, Marks: storage.Marks{Main: 7}})
	}
	if len(l.renewals) != count {
		t.Fatalf("%s leased %d lanes, want %d", name, len(l.renewals), count)
	}
	return l
}

func (l *leasing) acquire() []storage.Grant {
	l.Helper()
	grants, err := l.store.Acquire(l.Context(), l.name, storage.Lanes, time.Minute)
	if err != nil {
		l.Fatal(err)
	}
	return grants
}

func (l *leasing) wantRenewed(want int) {
	l.Helper()
	held, err := l.store.Renew(l.Context(), l.name, l.renewals, time.Minute)
	if err != nil || len(held) != want {
		l.Fatalf("%s renewed %d leases, %v; want %d", l.name, len(held), err, want)
	}
}

// onVersioned runs a test on the databases that keep dead row versions in the table (PostgreSQL).
func onVersioned(t *testing.T, test func(*testing.T, table)) {
	t.Parallel()
	for _, target := range testdb.Each() {
		if target.Kind == testdb.Postgres {
			t.Run(target.Name, func(t *testing.T) {
				t.Parallel()
				test(t, open(t, target))
			})
		}
	}
}

// versions returns the lanes with the places (ctid) of their rows. An update changes a row's place.
func versions(t *testing.T, table table) (places []string) {
	t.Helper()
	rows, err := table.DB.QueryContext(t.Context(), "SELECT lane, ctid::text FROM outbox_lanes ORDER BY lane")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var lane, place string
		if err := rows.Scan(&lane, &place); err != nil {
			t.Fatal(err)
		}
		places = append(places, lane+" at "+place)
	}
	return places
}

// A renewal writes the relay's row, and of the lanes' rows only those whose marks have changed. This limits the size of the table
// while a snapshot is open, because until then each row version that a renewal writes stays in the table.
func TestRenewalWritesOneRow(t *testing.T) {
	onVersioned(t, func(t *testing.T, table table) {
		a := leasingRelay(t, table, "a", storage.Lanes)
		a.wantRenewed(storage.Lanes) // moves the leases' ends to the relay's row
		before := versions(t, table)
		for range 3 {
			a.wantRenewed(storage.Lanes)
		}
		if after := versions(t, table); !slices.Equal(after, before) {
			t.Errorf("renewals without new marks moved the lanes' rows to %v, from %v", after, before)
		}
		a.renewals[5].Marks.Main++
		a.wantRenewed(storage.Lanes)
		changed := 0
		for i, place := range versions(t, table) {
			if place != before[i] {
				changed++
			}
		}
		if changed != 1 {
			t.Errorf("a renewal with one new mark wrote %d lanes, want 1", changed)
		}
	})
}

// If a relay's row was deleted, its lanes are free. The relay still renews the lanes that no other relay took, and then other relays
// can't take them.
func TestRelayWithoutARowRenewsOnlyLanesThatNoRelayTook(t *testing.T) {
	onVersioned(t, func(t *testing.T, table table) {
		a := leasingRelay(t, table, "a", storage.Lanes)
		a.wantRenewed(storage.Lanes)
		remove := func() {
			if _, err := table.DB.ExecContext(t.Context(), "DELETE FROM outbox_relays WHERE name = 'a'"); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		a.wantRenewed(storage.Lanes) // no other relay has taken them
		leasingRelay(t, table, "b", 0)

		if _, err := a.store.Heartbeat(t.Context(), storage.Identity{Name: "a", Claim: storage.ByLanes}, time.Minute); err != nil {
			t.Fatal(err)
		}
		a.wantRenewed(storage.Lanes) // the leases' ends are in the relay's row again
		remove()
		c := leasingRelay(t, table, "c", storage.Lanes)
		a.wantRenewed(0)
		c.wantRenewed(storage.Lanes)
	})
}

// A renewal waits for a takeover that has locked some lanes, and then doesn't return these lanes. The takeover is the test's own
// transaction.
func TestRenewalWaitsForATakeover(t *testing.T) {
	onVersioned(t, func(t *testing.T, table table) {
		a := leasingRelay(t, table, "a", storage.Lanes)
		a.wantRenewed(storage.Lanes)
		tx, err := table.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "SELECT lane FROM outbox_lanes WHERE lane < 10 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		answer := make(chan string, 1)
		go func() {
			held, err := a.store.Renew(t.Context(), "a", a.renewals, time.Minute)
			answer <- fmt.Sprintf("%d held, %v", len(held), err)
		}()
		for waiting := 0; waiting == 0; { // only this test uses the database
			if err := table.DB.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&waiting); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-answer:
				t.Fatalf("the renewal didn't wait: %s", got)
			case <-time.After(time.Millisecond):
			}
		}
		if _, err := tx.ExecContext(t.Context(), "UPDATE outbox_lanes SET owner = 'b', fence = fence + 1, until = now() + interval '1 minute' WHERE lane < 10"); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got, want := <-answer, "54 held, <nil>"; got != want {
			t.Errorf("the renewal returned %s, want %s", got, want)
		}
	})
}

// A takeover doesn't take a lane if it read that the lease had expired, but the lease was renewed before the takeover locked the
// lane. In the test, the takeover's first statement gets its snapshot, and then waits while it reads outbox_relays.
func TestTakeoverChecksTheLeaseAgainAfterLocking(t *testing.T) {
	onVersioned(t, func(t *testing.T, table table) {
		a := leasingRelay(t, table, "a", storage.Lanes)
		a.wantRenewed(storage.Lanes)
		b := leasingRelay(t, table, "b", 0)
		holds, err := table.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = holds.Close() }()
		for _, statement := range []string{
			"UPDATE outbox_relays SET leased_until = now() - interval '1 minute' WHERE name = 'a'",
			"ALTER TABLE outbox_relays RENAME TO relays_themselves",
			"CREATE FUNCTION waits() RETURNS boolean LANGUAGE sql VOLATILE AS 'SELECT pg_advisory_xact_lock_shared(1) IS NOT NULL'",
			"CREATE VIEW outbox_relays AS SELECT * FROM relays_themselves WHERE waits()",
			"SELECT pg_advisory_lock(1)",
		} {
			if _, err := holds.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		answer := make(chan int, 1)
		go func() { answer <- len(b.acquire()) }()
		for waiting := 0; waiting == 0; {
			if err := holds.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'").Scan(&waiting); err != nil {
				t.Fatal(err)
			}
		}
		for _, statement := range []string{"UPDATE relays_themselves SET leased_until = now() + interval '1 minute' WHERE name = 'a'", "SELECT pg_advisory_unlock(1)"} {
			if _, err := holds.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if taken := <-answer; taken != 0 {
			t.Errorf("a relay took over %d lanes whose leases were renewed before it locked them", taken)
		}
	})
}

// All statements lock the lanes in the same order. Otherwise a renewal and a statement that writes journals could wait for each other.
func TestJournalsLockLanesInOrder(t *testing.T) {
	onVersioned(t, func(t *testing.T, table table) {
		l := leasingRelay(t, table, "r", storage.Lanes)
		// Now the rows are stored in descending order, and the server reads the whole table.
		exec(t, table.DB, "WITH moved AS (DELETE FROM outbox_lanes RETURNING *) INSERT INTO outbox_lanes SELECT * FROM moved ORDER BY lane DESC")
		exec(t, table.DB, "ANALYZE outbox_lanes")
		tx, err := table.OpenAnother(t).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		var pid int
		if err := tx.QueryRow("SELECT pg_backend_pid() FROM outbox_lanes WHERE lane = 0 FOR UPDATE").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		var journals []storage.Journal
		for _, renewal := range l.renewals[:3] {
			journals = append(journals, storage.Journal{Lease: renewal.Lease, Suspects: []storage.Suspect{{Sink: "main", ID: 1}}})
		}
		written := make(chan error, 1)
		go func() {
			held, err := l.store.WriteJournal(t.Context(), l.name, journals)
			if err == nil && len(held) != len(journals) {
				err = fmt.Errorf("%d leases are valid, want %d", len(held), len(journals))
			}
			written <- err
		}()
		eventually(t, "the journals wait for lane 0", func() (waits bool) {
			if err := table.DB.QueryRow("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid).Scan(&waits); err != nil {
				t.Fatal(err)
			}
			return waits
		})
		var free int
		if err := table.DB.QueryRow("SELECT count(*) FROM (SELECT lane FROM outbox_lanes WHERE lane > 0 FOR UPDATE SKIP LOCKED) AS l").Scan(&free); err != nil || free != storage.Lanes-1 {
			t.Errorf("%d lanes after the locked one are free, %v; want %d", free, err, storage.Lanes-1)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}
