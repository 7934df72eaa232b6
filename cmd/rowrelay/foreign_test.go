package main

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// Commands neither change a table that rowrelay didn't create nor call it missing.
func TestCommandsRecogniseAnotherProgramsTable(t *testing.T) {
	t.Parallel()
	const (
		foreign = " exists, but rowrelay didn't create it: its columns "
		hint    = "give rowrelay's tables another name with --table (table: in a configuration); rowrelay adopt can forward the rows of this table to them"
	)
	on(t, func(t *testing.T, db testdb.Database) {
		for _, table := range []struct{ name, create, want string }{
			{"outbox", "CREATE TABLE outbox (id char(36) PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload varchar(4000))",
				"the table outbox" + foreign + "look like Debezium's"},
			{"orders_outbox", "CREATE TABLE orders_outbox (topic varchar(255) NOT NULL, message_key varchar(255), payload_text varchar(4000))",
				"the table orders_outbox" + foreign + "are topic, message_key, payload_text"},
			{"Events", "CREATE TABLE EVENTS_NAME (id int, body varchar(4000))", "the table Events" + foreign + "are id, body"},
			{"queue", "CREATE TABLE queue_messages (id int, body varchar(4000))", "the table queue_messages" + foreign + "are id, body"},
		} {
			execute(t, db.DB, strings.Replace(table.create, "EVENTS_NAME", quotedEvents(db), 1))
			where := []string{"--database", db.URL, "--table", table.name}
			for _, command := range []string{"migrate status", "migrate up", "check", "status", "run --sink discard: --drain", "migrate down"} {
				got := call(t.Context(), "", append(strings.Fields(command), where...)...)
				shown := got.stdout + got.stderr
				if got.code != exitFailed || !strings.Contains(shown, table.want) || !strings.Contains(shown, hint) {
					t.Errorf("%s --table %s: exit code %d, %s, want %q and the hint %q", command, table.name, got.code, shown, table.want, hint)
				}
				if strings.Contains(shown, "run rowrelay migrate up") {
					t.Errorf("%s --table %s: the hint recommends a command that fails in the same way: %s", command, table.name, shown)
				}
			}
		}
		mustRun(t, "migrate", "up", "--database", db.URL, "--table", "shop_outbox")
		mustRun(t, "check", "--database", db.URL, "--table", "shop_outbox")
	}, "postgres15/pgx", "postgres18/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
}

// quotedEvents is the name of the table Events, for a statement.
func quotedEvents(db testdb.Database) string {
	if db.Kind == testdb.Postgres {
		return `"Events"`
	}
	return "Events"
}

func TestMigratingRecognisesAnotherProgramsInbox(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db.DB, "CREATE TABLE inbox (message_id char(36) PRIMARY KEY, processed_at varchar(20))")
		for _, command := range []string{"migrate status", "migrate up", "migrate down"} {
			got := call(t.Context(), "", append(strings.Fields(command), "--inbox", "--database", db.URL)...)
			want := "the table inbox exists, but rowrelay didn't create it: its columns are message_id, processed_at"
			if got.code != exitFailed || !strings.Contains(got.stderr, want) || !strings.Contains(got.stderr, "give rowrelay's inbox another name with --table\n") {
				t.Errorf("%s: exit code %d, %s, want %q", command, got.code, got.stderr, want)
			}
		}
		mustRun(t, "migrate", "up", "--inbox", "--database", db.URL, "--table", "shop_inbox")
	}, "postgres18/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc")
}
