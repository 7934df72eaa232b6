package main

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// handmadeTable is another program's outbox table, with one row that is sent and two that wait.
func handmadeTable(t *testing.T, db testdb.Database) {
	t.Helper()
	columns := map[string]string{
		testdb.Postgres: "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text, aggregate_id text, body jsonb, sent_at timestamptz",
		testdb.MariaDB:  "id bigint AUTO_INCREMENT PRIMARY KEY, kind varchar(255), aggregate_id varchar(255), body json, sent_at datetime(6)",
		testdb.SQLite:   "id integer PRIMARY KEY, kind text, aggregate_id text, body text, sent_at text",
	}
	execute(t, db.DB, "CREATE TABLE events ("+columns[db.Kind]+")")
	execute(t, db.DB, "INSERT INTO events (kind, aggregate_id, body, sent_at) VALUES ('sent', 'a', '{}', current_timestamp), ('first', 'a', '{}', NULL), ('second', 'a', '{}', NULL)")
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		handmadeTable(t, db)
		adopt := func(stdin string, flags ...string) result {
			return call(t.Context(), stdin, append([]string{"adopt", "--from", "events", "--database", db.URL}, flags...)...)
		}
		wants := func(got result, code int, texts ...string) {
			t.Helper()
			for _, text := range texts {
				if !strings.Contains(got.stdout+got.stderr, text) {
					t.Errorf("the output lacks %q:\n%s%s", text, got.stdout, got.stderr)
				}
			}
			if got.code != code {
				t.Errorf("the exit code is %d, want %d: %s", got.code, code, got.stderr)
			}
		}
		wants(adopt("", "--plan"), exitDone, "not forwarded   id", "rows that wait  2", `topic "first", key "a"`, "COSTS", "LOCKS", "RIGHTS", "LIMITS", "CREATE TRIGGER", "SQL OF --undo", "DROP TRIGGER")
		wants(adopt("", "--plan", "--waiting", "kind = 'second'", "--topic", "'all'"), exitDone, "rows that wait  1", `topic "all", key "a"`)
		wants(adopt("n\n"), exitFailed, "2 waiting rows", "nothing was changed: give --yes")
		if db.Kind == testdb.Postgres {
			wants(adopt("n\n"), exitFailed, "warning: the user ", "is a superuser")
		}
		wants(adopt("", "--status"), exitDone, "nothing: it is not adopted")
		wants(adopt("", "--undo", "--yes"), exitDone, "events is not adopted")

		// The flags of a run that fails before it forwards a row aren't used later.
		wants(adopt("", "--yes", "--topic", "'all'", "--published", "kind='sent'"), exitFailed, "a row still waits after it was marked")
		wants(adopt("", "--plan"), exitDone, "published       sent_at = current_timestamp", `topic "first"`, "the mapping follows the columns' names")
		wants(adopt("", "--undo", "--yes"), exitDone, "no longer forwarded")
		wants(adopt("", "--undo", "--yes"), exitDone, "events is not adopted")

		wants(adopt("y\n", "--header", "kind=kind"), exitDone, "2 waiting rows were forwarded")
		execute(t, db.DB, "INSERT INTO events (kind, aggregate_id, body) VALUES ('third', 'a', '{}')")
		wants(adopt("", "--status"), exitDone, "trigger", "waiting rows in the table               0", "2 (complete)")
		wants(adopt("", "--plan"), exitDone, "kind=kind", "the mapping is from the last run")
		relayed := mustRun(t, "run", "--database", db.URL, "--sink", "stdout:", "--drain").stdout
		var topics []string
		for _, word := range []string{"first", "second", "third"} {
			if at := strings.Index(relayed, `"kind":"`+word+`"`); at >= 0 {
				topics = append(topics, word)
			}
		}
		if strings.Join(topics, " ") != "first second third" || strings.Contains(relayed, `"sent"`) || strings.Count(relayed, "\n") != 3 {
			t.Errorf("the relay delivered %s", relayed)
		}
		wants(call(t.Context(), "", "migrate", "down", "--database", db.URL), exitFailed, "events --undo first")
		execute(t, db.DB, "INSERT INTO events (kind, aggregate_id, body) VALUES ('', 'a', '{}')")
		wants(adopt("", "--undo", "--yes"), exitDone, "no longer forwarded", "stay parked: 1 ")
		execute(t, db.DB, "INSERT INTO events (kind, aggregate_id, body) VALUES ('fourth', 'a', '{}')")
		wants(adopt("", "--status"), exitDone, "waiting rows in the table               1")

		// If rows aren't marked, --undo prints which rows the old loop must send, and how to adopt the table again.
		wants(adopt("", "--yes", "--waiting", "id > 1", "--published", "none", "--topic", "upper(kind)", "--header", "by='me'"), exitDone, "were forwarded")
		wants(adopt("", "--status"), exitDone, "waiting rows in the table               0")
		wants(adopt("", "--undo", "--yes"), exitDone, "The rows with id > 6 were not forwarded",
			`give --topic 'upper(kind)' --waiting 'id > 6' --header 'by='\''me'\''' --published 'none'`, "If the old loop has run meanwhile")

		if db.Kind == testdb.Postgres {
			wants(adopt("", "--yes", "--view"), exitDone, "forwarded by a view")
			wants(adopt("", "--undo", "--yes"), exitDone, "with the same mapping, give --view\n")
		}

		for _, wrong := range []struct {
			flags []string
			code  int
			text  string
		}{
			{[]string{"--header", "kind"}, exitUsage, "must have the form name=expression"},
			{[]string{"--published", "nothing=1", "--plan"}, exitUsage, "must have the form column = expression"},
			{[]string{"--topic", "kind; DROP TABLE events", "--print"}, exitUsage, "must not contain comments, semicolons"},
			{[]string{"--topic", "no_such_function(kind)", "--plan"}, exitFailed, "the mapping fails for a row of events"},
			{[]string{"--published", "sent_at=no_such_function(kind)", "--plan"}, exitFailed, "check the statements that forward the rows of events"},
			{[]string{"--published", "sent_at=no_such_function(kind)", "--print"}, exitFailed, "check the statements that forward the rows of events"},
			{[]string{"--plan", "--undo"}, exitUsage, "use --undo --print"},
			{[]string{"--waiting", "", "--print"}, exitUsage, "which rows have been sent"},
			{[]string{"--waiting", "", "--plan"}, exitUsage, "which rows have been sent"},
		} {
			wants(adopt("", wrong.flags...), wrong.code, wrong.text)
		}
		wants(call(t.Context(), "", "adopt", "--database", db.URL), exitUsage, "--from is required")
		wants(call(t.Context(), "", "adopt", "--from", "none", "--database", db.URL), exitFailed, "it doesn't exist")
		wants(call(t.Context(), "", "adopt", "--from", "outbox", "--database", db.URL), exitFailed, "this is rowrelay's own outbox")
	})
}

// An interrupted adopt prints how to continue, and so does --status.
func TestInterruptedAdopt(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL)
		handmadeTable(t, db)
		tx, err := db.DB.BeginTx(t.Context(), nil)
		if err == nil {
			_, err = tx.ExecContext(t.Context(), "LOCK TABLE events IN ROW EXCLUSIVE MODE")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		adopt := start(t, "adopt", "--from", "events", "--database", db.URL, "--yes")
		adopt.log.wait(t, "try 1")
		code, logged := adopt.stop(t)
		if code != exitInterrupted || !strings.Contains(logged, "interrupted: 2 waiting rows were forwarded: run the command again to continue, or with --undo to go back") {
			t.Errorf("exit code %d: %s", code, logged)
		}
		if got := call(t.Context(), "", "adopt", "--from", "events", "--status", "--database", db.URL); !strings.Contains(got.stdout, "nothing yet: run adopt again to continue, or with --undo to go back") {
			t.Errorf("the status is\n%s%s", got.stdout, got.stderr)
		}
	}, "postgres18/pgx")
}
