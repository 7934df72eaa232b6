package adopt_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Verify refuses a mapping that fails only in the statements that Run executes.
func TestVerifyChecksTheStatementsOfRun(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		a := open(t, db, "events")
		check(t, a.Verify(t.Context()))
		proposed := a.Mapping
		for _, waiting := range []string{proposed.Waiting, "false"} {
			a.Mapping.Waiting, a.Mapping.Published = waiting, []string{"sent_at = no_such_function(kind)"}
			if a.Verify(t.Context()) == nil {
				t.Errorf("with the condition %s, Verify accepts an unknown function", waiting)
			}
		}
		a.Mapping = proposed
		a.Mapping.Order = "kind, no_such_column"
		if a.Verify(t.Context()) == nil {
			t.Error("Verify accepts an unknown column in the order")
		}
		wantLines(t, db, "SELECT count(*) FROM outbox_settings WHERE name LIKE 'adopt.%'", "0")
		check(t, open(t, db, "events").Verify(t.Context())) // the temporary table of MySQL is gone
	}, everyServer...)
}

// withoutNumbers is a table of PostgreSQL with no column that the database numbers, so its rows are ordered by cmin and ctid.
const withoutNumbers = "CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind text, created_at timestamptz DEFAULT now(), sent_at timestamptz)"

// Rows of one transaction, which have the same time and random keys, keep their order on PostgreSQL.
func TestRowsOfOneTransactionKeepTheirOrder(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, withoutNumbers)
		execute(t, db, "INSERT INTO events (id, kind) VALUES (overlay(gen_random_uuid()::text placing '9' from 1 for 1)::uuid, 'a'), (overlay(gen_random_uuid()::text placing '8' from 1 for 1)::uuid, 'b'), (overlay(gen_random_uuid()::text placing '7' from 1 for 1)::uuid, 'c')")
		a := open(t, db, "events")
		if a.Mapping.Order != "created_at, cmin::text::bigint, ctid" || !strings.Contains(strings.Join(a.Facts().Limits, "\n"), "(ctid)") {
			t.Errorf("the proposed order is %q, with the limits %q", a.Mapping.Order, a.Facts().Limits)
		}
		check(t, a.Verify(t.Context()))
		check(t, a.Verify(t.Context()))
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c")
	}, everyPostgres...)
}

// A plan counts the waiting rows of a key that one statement wrote, because only their places in the table show their order.
func TestRowsOfOneStatementAreCounted(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind text, aggregate_id text, created_at timestamptz DEFAULT now(), sent_at timestamptz)")
		warned := func() string {
			survey, err := open(t, db, "events").Survey(t.Context())
			check(t, err)
			return strings.Join(survey.Warnings, "\n")
		}
		execute(t, db, "INSERT INTO events (kind, aggregate_id) VALUES ('k', 'a'), ('k', 'b'), ('k', NULL), ('k', NULL)")
		execute(t, db, "INSERT INTO events (kind, aggregate_id) VALUES ('k', 'a')")
		if got := warned(); strings.Contains(got, "INSERT statement") {
			t.Errorf("if each statement wrote one row of a key, the warnings are %q", got)
		}
		execute(t, db, "INSERT INTO events (kind, aggregate_id) VALUES ('k', 'a'), ('k', 'a'), ('k', 'b')")
		if got := warned(); !strings.Contains(got, "2 of the waiting rows have the key and the time of other waiting rows") {
			t.Errorf("if one statement wrote two rows of a key, the warnings are %q", got)
		}
	}, everyPostgres...)
}

// A small row that fills a hole in the table is placed before larger rows that were inserted earlier.
func TestStatementsOfOneTransactionKeepTheirOrder(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), kind text, body text, created_at timestamptz DEFAULT now(), sent_at timestamptz) WITH (autovacuum_enabled = false)")
		execute(t, db, "ALTER TABLE events ALTER COLUMN body SET STORAGE PLAIN")
		execute(t, db, "INSERT INTO events (kind, body, sent_at) VALUES ('old', repeat('x', 5000), now()), ('old', repeat('x', 2500), now()), ('old', repeat('x', 3000), now())")
		execute(t, db, "DELETE FROM events WHERE ctid = '(0,2)'")
		execute(t, db, "VACUUM events")
		tx, err := db.DB.BeginTx(t.Context(), nil)
		check(t, err)
		for _, insert := range []string{"('a', repeat('x', 4500))", "('b', repeat('x', 2500))", "('c', '')"} {
			_, err := tx.ExecContext(t.Context(), "INSERT INTO events (kind, body) VALUES "+insert)
			check(t, err)
		}
		check(t, tx.Commit())
		if places := lines(t, db, "SELECT kind FROM events WHERE sent_at IS NULL ORDER BY ctid"); slices.Equal(places, []string{"a", "b", "c"}) {
			t.Fatal("the rows' places have the order of the INSERTs, so this test proves nothing")
		}
		_, err = open(t, db, "events").Run(t.Context(), nil)
		check(t, err)
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c")
	}, everyPostgres...)
}

// On MySQL and MariaDB, marks have the server's time zone and the column's fractional digits, as those of programs do.
func TestMarksHaveTheTimeOfPrograms(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE events (id bigint AUTO_INCREMENT PRIMARY KEY, kind varchar(20), sent_at datetime(6))")
		execute(t, db, "INSERT INTO events (kind) VALUES ('a'), ('b')")
		elsewhere, err := sql.Open(db.Driver, db.DSN+"&time_zone=%27-07%3A30%27")
		check(t, err)
		defer func() { check(t, elsewhere.Close()) }()
		d, err := dialect.ByName(db.Kind)
		check(t, err)
		a, err := adopt.Open(t.Context(), elsewhere, d, "outbox", "events")
		check(t, err)
		if want := []string{"sent_at = current_timestamp(6)"}; !slices.Equal(a.Mapping.Published, want) {
			t.Errorf("the proposed mark is %q, want %q", a.Mapping.Published, want)
		}
		_, err = a.Run(t.Context(), nil)
		check(t, err)
		wantLines(t, db, "SELECT count(*) FROM events WHERE abs(timestampdiff(minute, sent_at, convert_tz(utc_timestamp(6), '+00:00', @@global.time_zone))) < 60", "2")
	}, "mysql/gosql", "mariadb1011/gosql")
}

// The printed SQL of --undo leaves neither triggers nor the record, so that the table can be adopted again.
func TestTheScriptOfTheWayBack(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		_, err := open(t, db, "events").Run(t.Context(), nil)
		check(t, err)
		script, err := open(t, db, "events").UndoScript()
		check(t, err)
		conn, err := db.DB.Conn(t.Context())
		check(t, err)
		defer func() { check(t, conn.Close()) }()
		for statement := range strings.SplitSeq(script, ";\n") {
			if statement = strings.TrimSpace(statement); statement == "" {
				continue
			}
			if _, err := conn.ExecContext(t.Context(), strings.TrimSuffix(statement, ";")); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		if a := open(t, db, "events"); a.Adopted() != "" || a.Recorded() {
			t.Errorf("after the script the table is adopted (%q) or recorded (%v)", a.Adopted(), a.Recorded())
		}
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('later', '1', '{}')")
		wantLines(t, db, "SELECT count(*) FROM outbox", "0")
	}, everyServer...)
}

// A run that began before another one created the trigger forwards no row again.
func TestTwoRunsAtTheSameTime(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		for _, published := range [][]string{nil, {"delete"}} {
			execute(t, db, "DROP TABLE IF EXISTS events")
			execute(t, db, events[db.Kind])
			execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('a', '1', '{}')")
			late, early := open(t, db, "events"), open(t, db, "events")
			if published != nil {
				late.Mapping.Published, early.Mapping.Published = published, published
			}
			_, err := early.Run(t.Context(), nil)
			check(t, err)
			execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('b', '1', '{}')")
			_, err = late.Run(t.Context(), nil)
			check(t, err)
			execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('c', '1', '{}')")
			wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c")
			undo(t, open(t, db, "events"))
			execute(t, db, "DELETE FROM outbox")
		}
	}, everyServer...)
}

// Two runs at the same time forward each row once, and record how many rows both have forwarded.
func TestConcurrentRunsShareTheRecord(t *testing.T) {
	t.Parallel()
	for _, marks := range []bool{true, false} {
		t.Run(fmt.Sprintf("marks %v", marks), func(t *testing.T) {
			t.Parallel()
			on(t, func(t *testing.T, db testdb.Database) { concurrentRuns(t, db, marks) }, everyServer...)
		})
	}
}

func concurrentRuns(t *testing.T, db testdb.Database, marks bool) {
	execute(t, db, events[db.Kind])
	for range 13 {
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) SELECT coalesce(max(kind), 'a'), '1', '{}' FROM events UNION ALL SELECT kind, aggregate_id, body FROM events")
	}
	runs := []*adopt.Adoption{open(t, db, "events"), open(t, db, "events")}
	failed := make(chan error)
	for _, run := range runs {
		if !marks {
			run.Mapping.Published = nil
		}
		go func() {
			_, err := run.Run(t.Context(), nil)
			failed <- err
		}()
	}
	for range runs {
		check(t, <-failed)
	}
	survey, err := open(t, db, "events").Survey(t.Context())
	check(t, err)
	if survey.Forwarded != 8191 || !survey.Complete {
		t.Errorf("%d rows are recorded as forwarded, complete is %v, want 8191 and true", survey.Forwarded, survey.Complete)
	}
	wantLines(t, db, "SELECT count(*) FROM outbox", "8191")
}

// A run that is interrupted completes its batch. Even an UPDATE that is rolled back changes a row's cmin, and so its order.
func TestInterruptedRunCompletesItsBatch(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, withoutNumbers)
		execute(t, db, "INSERT INTO events (kind) SELECT 'a' || n FROM generate_series(1, 1500) n")
		holder, err := db.DB.BeginTx(t.Context(), nil)
		check(t, err)
		defer func() { _ = holder.Rollback() }()
		_, err = holder.ExecContext(t.Context(), "SELECT FROM events WHERE kind = 'a500' FOR UPDATE")
		check(t, err)
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan int64)
		run := open(t, db, "events")
		go func() {
			moved, err := run.Run(ctx, nil)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v, want context.Canceled", err)
			}
			ended <- moved
		}()
		for blocked := false; !blocked; {
			select {
			case moved := <-ended:
				t.Fatalf("the run has ended with %d rows before it was interrupted", moved)
			default:
			}
			check(t, db.DB.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&blocked))
		}
		interrupt()
		check(t, holder.Commit())
		if moved := <-ended; moved != 1000 {
			t.Errorf("the interrupted run has forwarded %d rows, want its batch of 1000", moved)
		}
		wantLines(t, db, "SELECT count(*) FROM outbox", "1000")
	}, everyPostgres...)
}

// A plan counts the rows that have lost the order of their INSERT statements, because an UPDATE was rolled back.
func TestRowsWithoutTheirOrderAreCounted(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, withoutNumbers)
		execute(t, db, "INSERT INTO events (kind) SELECT 'a' FROM generate_series(1, 3)")
		warned := func() string {
			survey, err := open(t, db, "events").Survey(t.Context())
			check(t, err)
			return strings.Join(survey.Warnings, "\n")
		}
		if got := warned(); strings.Contains(got, "rolled back") {
			t.Errorf("before the UPDATE: %q", got)
		}
		tx, err := db.DB.BeginTx(t.Context(), nil)
		check(t, err)
		_, err = tx.ExecContext(t.Context(), "UPDATE events SET sent_at = now() WHERE ctid <> '(0,1)'")
		check(t, err)
		check(t, tx.Rollback())
		if got := warned(); !strings.Contains(got, "2 of the waiting rows") {
			t.Errorf("after the UPDATE: %q", got)
		}
	}, everyPostgres...)
}
