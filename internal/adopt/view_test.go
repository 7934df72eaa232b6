package adopt_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

var everyPostgres = []string{"postgres15/pgx", "postgres18/pq"}

// A program needs no further rights to insert into a view in the table's place, and can use defaults and RETURNING. --undo puts the
// table back.
func TestView(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, `CREATE TABLE events (id bigserial PRIMARY KEY, kind text NOT NULL DEFAULT 'none', aggregate_id text NOT NULL,
			body jsonb NOT NULL, note text DEFAULT 'a note', sent_at timestamptz)`)
		writer := role(t, db, "GRANT SELECT, INSERT, UPDATE, DELETE ON events TO ")
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('a', '1', '{}'), ('b', '1', '{}')")
		a := open(t, db, "events")
		a.Way, a.Mapping.Header = adopt.View, []adopt.Header{{Name: "note", Value: "note"}, {Name: "id", Value: "id"}}
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		as := func(statement string) {
			execute(t, db, "SET ROLE "+writer+"; "+statement+"; RESET ROLE")
		}
		as("INSERT INTO events (kind, aggregate_id, body) VALUES ('c', '1', '{}'), (DEFAULT, '1', '{}')")
		as("INSERT INTO events (kind, aggregate_id, body, note) VALUES ('d', '1', '{}', NULL) ON CONFLICT DO NOTHING")
		as("INSERT INTO events (kind, aggregate_id, body, sent_at) VALUES ('already sent', '1', '{}', now())")
		as("WITH written AS (INSERT INTO events (kind, aggregate_id, body) VALUES ('e', '1', '{}') RETURNING id) DELETE FROM events USING written WHERE events.id = written.id")
		as("UPDATE events SET note = 'seen' WHERE kind = 'already sent'")
		execute(t, db, "COPY events (kind, aggregate_id, body) FROM PROGRAM 'printf ''f\\t1\\t{}\\n'''")
		wantLines(t, db, "SELECT topic || ' ' || headers FROM outbox ORDER BY id", `a {"id": "1", "note": "a note"}`, `b {"id": "2", "note": "a note"}`,
			`c {"id": "3", "note": "a note"}`, `none {"id": "4", "note": "a note"}`, `d {"id": "5"}`, `e {"id": "7", "note": "a note"}`, `f {"id": "8", "note": "a note"}`)
		wantLines(t, db, "SELECT kind || ' ' || note FROM events_adopted WHERE kind NOT IN ('a', 'b')", "already sent seen")

		a = open(t, db, "events")
		if a.Adopted() != adopt.View || len(a.Mapping.Header) != 2 {
			t.Errorf("the table is adopted by %q with %d headers, want view and 2", a.Adopted(), len(a.Mapping.Header))
		}
		_, err = a.Run(t.Context(), nil) // again: nothing changes
		check(t, err)
		undo(t, a)
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('g', '1', '{}')")
		wantLines(t, db, "SELECT kind FROM events WHERE sent_at IS NULL", "g")
		wantLines(t, db, "SELECT count(*) FROM outbox", "7")
		if again := open(t, db, "events"); again.Adopted() != "" {
			t.Errorf("after Undo the table is adopted by a %s", again.Adopted())
		}
	}, everyPostgres...)
}

// A user who may create functions in the schema of the outbox can't use them to get further rights.
func TestFunctionsOfOthersAreNotCalled(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, "CREATE TABLE events (id int PRIMARY KEY, kind text, sent boolean NOT NULL DEFAULT false); INSERT INTO events VALUES (1, 'a'); CREATE TABLE loot (by_user text)")
		writer := role(t, db, "GRANT USAGE, CREATE ON SCHEMA public TO PUBLIC; GRANT INSERT ON events TO ")
		for _, name := range []string{"concat", "jsonb_build_object"} {
			execute(t, db, "SET ROLE "+writer+"; CREATE FUNCTION public."+name+"(text, text) RETURNS text LANGUAGE sql AS $$ INSERT INTO public.loot VALUES (current_user); SELECT '{}' $$; RESET ROLE")
		}
		for _, way := range []adopt.Way{adopt.Trigger, adopt.View} {
			a := open(t, db, "events")
			a.Way = way
			a.Mapping = adopt.Mapping{Topic: "concat(kind, '.x'::text)", Header: []adopt.Header{{Name: "kind", Value: "kind"}}, Waiting: "NOT sent", Order: "id", Published: []string{"sent = true"}}
			_, err := a.Survey(t.Context())
			check(t, err)
			_, err = a.Run(t.Context(), nil)
			check(t, err)
			execute(t, db, "SET ROLE "+writer+"; INSERT INTO events (id, kind, sent) SELECT count(*) + 10, 'b', false FROM pg_trigger WHERE tgname = 'none'; RESET ROLE")
			undo(t, a)
			execute(t, db, "DELETE FROM events WHERE id = 10")
		}
		wantLines(t, db, "SELECT count(*) FROM loot", "0")
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a.x", "b.x", "b.x")
	}, everyPostgres...)
}

// role creates a role with some grants, and drops it at the end.
func role(t *testing.T, db testdb.Database, grants string) string {
	t.Helper()
	var name string
	check(t, db.DB.QueryRowContext(t.Context(), "SELECT 'writer_of_' || substr(current_database(), 15)").Scan(&name))
	name = strings.ToLower(name)
	execute(t, db, "CREATE ROLE "+name+"; "+grants+name)
	pool := db.OpenAnother(t)
	t.Cleanup(func() {
		if _, err := pool.Exec("DROP OWNED BY " + name + "; DROP ROLE " + name); err != nil {
			t.Error(err)
		}
	})
	return name
}
