package adopt_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var everyServer = []string{"postgres15/pgx", "postgres18/pq", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc"}

// on runs a test on databases that have an outbox.
func on(t *testing.T, test func(t *testing.T, db testdb.Database), names ...string) {
	t.Helper()
	for _, target := range testdb.Targets() {
		for _, name := range names {
			if target.Name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, target.OpenOutbox(t))
			})
		}
	}
}

func open(t *testing.T, db testdb.Database, from string) *adopt.Adoption {
	t.Helper()
	d, err := dialect.ByName(db.Kind)
	check(t, err)
	a, err := adopt.Open(t.Context(), db.DB, d, "outbox", from)
	check(t, err)
	return a
}

func undo(t *testing.T, a *adopt.Adoption) {
	t.Helper()
	_, err := a.Undo(t.Context(), nil)
	check(t, err)
}

// events is a handmade table of each kind of database.
var events = map[string]string{
	testdb.Postgres: "CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text, aggregate_id text NOT NULL, body jsonb NOT NULL, sent_at timestamptz)",
	testdb.MySQL:    "CREATE TABLE events (id bigint AUTO_INCREMENT PRIMARY KEY, kind varchar(300), aggregate_id varchar(300) NOT NULL, body json NOT NULL, sent_at datetime(6))",
	testdb.MariaDB:  "CREATE TABLE events (id bigint AUTO_INCREMENT PRIMARY KEY, kind varchar(300), aggregate_id varchar(300) NOT NULL, body json NOT NULL, sent_at datetime(6))",
	testdb.SQLite:   "CREATE TABLE events (id integer PRIMARY KEY, kind text, aggregate_id text NOT NULL, body text NOT NULL, sent_at text)",
}

// The backlog is forwarded in its order, new rows after it, and rows that the outbox would refuse are parked.
func TestRowsAreForwardedInOrder(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body, sent_at) VALUES ('a', '1', '{}', current_timestamp), ('b', '1', '{}', NULL), ('c', '2', '{}', NULL), ('', '2', '{}', NULL)")
		a := open(t, db, "events")
		moved, err := a.Run(t.Context(), nil)
		check(t, err)
		if moved != 3 {
			t.Errorf("%d rows of the backlog were forwarded, want 3", moved)
		}
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('d', '1', '{}'), (NULL, '1', '{}')")
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body, sent_at) VALUES ('e', '1', '{}', current_timestamp)")
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "b", "c", "d")
		wantLines(t, db, "SELECT last_error FROM outbox_held WHERE state = 'error' ORDER BY id", "rowrelay adopt: the topic is empty", "rowrelay adopt: the topic is empty")
		wantLines(t, db, "SELECT count(*) FROM events WHERE sent_at IS NULL", "0")
		undo(t, a)
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('f', '1', '{}')")
		wantLines(t, db, "SELECT count(*) FROM outbox", "3")
		wantLines(t, db, "SELECT count(*) FROM events WHERE sent_at IS NULL", "1")
	}, everyServer...)
}

// A mark that leaves a row waiting would forward it again and again.
func TestAMarkMustEndTheWait(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('a', '1', '{}')")
		a := open(t, db, "events")
		a.Mapping.Published = []string{"kind = 'sent'"}
		if _, err := a.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "must make the condition") {
			t.Errorf("Run returns %v", err)
		}
		if again := open(t, db, "events"); again.Remembered() || again.Mapping.Published[0] == "kind = 'sent'" {
			t.Errorf("the mapping of the failed run is remembered: %q", again.Mapping.Published)
		}
		wantLines(t, db, "SELECT count(*) FROM outbox", "0")
		wantLines(t, db, "SELECT kind FROM events", "a")
	}, "postgres15/pgx", "mariadb1011/gosql", "sqlite/modernc")
}

func wantLines(t *testing.T, db testdb.Database, query string, want ...string) {
	t.Helper()
	if got := lines(t, db, query); !slices.Equal(got, want) {
		t.Errorf("%s selects %q, want %q", query, got, want)
	}
}

func lines(t *testing.T, db testdb.Database, query string) (list []string) {
	t.Helper()
	rows, err := db.DB.QueryContext(t.Context(), query)
	check(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var line string
		check(t, rows.Scan(&line))
		list = append(list, line)
	}
	check(t, rows.Err())
	return list
}

func execute(t *testing.T, db testdb.Database, statement string, args ...any) {
	t.Helper()
	_, err := db.DB.ExecContext(t.Context(), statement, args...)
	check(t, err)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Undo returns the condition of the rows that were not forwarded, if they are not marked. An adoption with this condition continues after
// the forwarded rows.
func TestUndoReturnsTheRest(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, events[db.Kind])
		insert := func(kind string) {
			execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('"+kind+"', '1', '{}')")
		}
		insert("a")
		a := open(t, db, "events")
		a.Mapping.Waiting, a.Mapping.Published = "true", nil
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		insert("b")
		a = open(t, db, "events")
		survey, err := a.Survey(t.Context())
		if check(t, err); survey.Waiting != 0 {
			t.Errorf("%d rows wait, want 0", survey.Waiting)
		}
		rest, err := a.Undo(t.Context(), nil)
		if check(t, err); rest != "id > 2" {
			t.Errorf("Undo returns %q", rest)
		}
		insert("c")
		a = open(t, db, "events")
		a.Mapping.Waiting, a.Mapping.Published = rest, nil
		_, err = a.Run(t.Context(), nil)
		check(t, err)
		insert("d")
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "a", "b", "c", "d")
		a = open(t, db, "events")
		a.Mapping.Published = []string{"sent_at = current_timestamp"}
		if rest, err := a.Undo(t.Context(), nil); err != nil || rest != "" {
			t.Errorf("with marks Undo returns %q, %v", rest, err)
		}
	}, everyServer...)
}
