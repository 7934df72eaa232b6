package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
)

func TestMigrating(t *testing.T) {
	t.Parallel()
	onEveryVersion(t, func(t *testing.T, db testdb.Database) {
		for _, step := range []struct {
			line, want string
		}{
			{"migrate status", "pending"},
			{"migrate down", "outbox has no migration to revert"},
			{"migrate up", "applied"},
			{"migrate up", "the tables of outbox are up to date"},
			{"migrate status", "applied"},
			{"migrate status --json", `"applied": true`},
			{"status", "pending"},
			{"migrate down --json", `"reverted"`},
			{"migrate status", "pending"},
			{"migrate up --json", `"applied": [`},
		} {
			if got := mustRun(t, append(strings.Fields(step.line), "--database", db.URL)...); !strings.Contains(got.stdout, step.want) {
				t.Errorf("%s: got %q, want %q in it", step.line, got.stdout, step.want)
			}
		}
	})
}

func TestNotifyTrigger(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		for _, step := range []struct {
			line, want string
		}{
			{"migrate status", "plain INSERTs notify off"},
			{"migrate up", "applied"},
			{"migrate status", "plain INSERTs notify off"},
			{"check", "plain INSERTs send none (see rowrelay migrate up --notify)"},
			{"migrate up --notify", "plain INSERTs notify on"},
			{"migrate up --notify --json", `"notify": true`},
			{"migrate up", "the tables of outbox are up to date"}, // without --notify, migrate up keeps the trigger
			{"migrate status", "plain INSERTs notify on"},
			{"migrate status --json", `"notify": true`},
			{"check", "plain INSERTs send them"},
			{"migrate up --notify=false", "plain INSERTs notify off"},
			{"migrate up --notify=false", "plain INSERTs notify off"},
			{"migrate up --notify", "plain INSERTs notify on"},
			{"migrate down", "reverted"},
			{"migrate down", "reverted"},
		} {
			got := mustRun(t, append(strings.Fields(step.line), "--database", db.URL)...)
			if !strings.Contains(spaced(got.stdout), step.want) {
				t.Errorf("%s: got %q, want %q in it", step.line, got.stdout, step.want)
			}
		}
		var left int
		if err := db.DB.QueryRow("SELECT count(*) FROM pg_proc WHERE proname = 'outbox_notify'").Scan(&left); err != nil || left > 0 {
			t.Errorf("%d functions are left (%v)", left, err)
		}
		executeAll(t, db, mustRun(t, "migrate", "print", "--notify", "--database", db.URL).stdout)
		if got := mustRun(t, "migrate", "status", "--database", db.URL); !strings.Contains(spaced(got.stdout), "plain INSERTs notify on") {
			t.Errorf("after the printed SQL: got %q", got.stdout)
		}
		executeAll(t, db, mustRun(t, "migrate", "print", "--notify=false", "--database", db.URL).stdout[len(mustRun(t, "migrate", "print", "--database", db.URL).stdout):])
		if got := mustRun(t, "migrate", "status", "--database", db.URL); !strings.Contains(spaced(got.stdout), "plain INSERTs notify off") {
			t.Errorf("after the printed SQL that drops it: got %q", got.stdout)
		}
	}, "postgres15/pgx", "postgres18/pgx")
}

// spaced returns a table's text with single spaces between the columns.
func spaced(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestOnlyPostgreSQLNotifies(t *testing.T) {
	t.Parallel()
	file := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	for _, line := range []string{"migrate up --notify --database " + file, "migrate up --notify=false --database " + file, "migrate print --notify --database mysql://"} {
		if got := call(t.Context(), "", strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.stderr, "has no notifications: leave the option out") {
			t.Errorf("%s: exit code %d, %q", line, got.code, got.stderr)
		}
	}
}

func TestMigratingDownKeepsUndeliveredMessages(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		mustCall(t, `{"topic":"a","available_at":"2999-01-01T00:00:00Z"}`, "enqueue", "--database", db.URL)
		got := call(t.Context(), "", "migrate", "down", "--database", db.URL)
		if got.code != exitFailed || !strings.Contains(got.stderr, "1 undelivered messages would be lost") {
			t.Errorf("exit code %d, %q", got.code, got.stderr)
		}
		if left := statusOf(t, db); left.Scheduled+left.Pending != 1 {
			t.Errorf("the status is %+v", left)
		}
		mustRun(t, "migrate", "down", "--discard-messages", "--database", db.URL)
		if gone := call(t.Context(), "", "status", "--database", db.URL); gone.code != exitFailed {
			t.Errorf("the tables are still there: %s", gone.stdout)
		}
	})
}

func TestMigratingDownKeepsControlsAndTheLogOfActions(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "pause", "topic", "orders", "--database", db.URL, "--reason", "a test")
		got := call(t.Context(), "", "migrate", "down", "--discard-messages", "--database", db.URL)
		if got.code != exitFailed || !strings.Contains(got.stderr, "1 controls (pauses and limits) and 1 entries of the log of actions would be lost") {
			t.Errorf("exit code %d, %q", got.code, got.stderr)
		}
		statusOf(t, db)
		mustRun(t, "migrate", "down", "--discard-controls", "--database", db.URL)
		if gone := call(t.Context(), "", "status", "--database", db.URL); gone.code != exitFailed {
			t.Errorf("the tables are still there: %s", gone.stdout)
		}
	})
}

func TestMigratingFromManyProcesses(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, db testdb.Database) {
		for _, direction := range []string{"up", "down", "up"} {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if got := call(t.Context(), "", "migrate", direction, "--database", db.URL); got.code != exitDone {
						t.Errorf("%s: exit code %d, %q", direction, got.code, got.stderr)
					}
				})
			}
			all.Wait()
		}
		statusOf(t, db)
	})
}

func TestPrintedSQLCreatesTheTables(t *testing.T) {
	t.Parallel()
	onEveryVersion(t, func(t *testing.T, db testdb.Database) {
		printed := mustRun(t, "migrate", "print", "--database", db.URL).stdout
		executeAll(t, db, printed)
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		if got := statusOf(t, db); got.Pending != 1 {
			t.Errorf("the status is %+v", got)
		}
	})
}

func TestPrintingAfterTheNewestVersion(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "rowrelay.yaml")
	if err := os.WriteFile(config, []byte("sources:\n  a: {database: 'sqlite:a.db', claim: rows}\nsinks:\n  d: {type: discard}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	newest := strconv.Itoa(migrations.Version)
	for line, want := range map[string]string{
		"--after " + newest + " --database postgres://":               "",
		"--after " + newest + " --config " + config:                   "",
		"--after " + newest + " --config " + config + " --claim rows": "claim_id",
		"--after 1 --inbox --database postgres://":                    "",
	} {
		if got := mustRun(t, strings.Fields("migrate print "+line)...).stdout; want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("migrate print %s: got %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{"--after " + strconv.Itoa(migrations.Version+1) + " --database postgres://", "--after -1 --database postgres://", "--after 2 --inbox --database postgres://"} {
		if got := call(t.Context(), "", strings.Fields("migrate print "+line)...); got.code != exitUsage || !strings.Contains(got.stderr, "this release has the versions 1 to ") {
			t.Errorf("migrate print %s: exit code %d, %q", line, got.code, got.stderr)
		}
	}
}

// executeAll runs a script. One driver needs a parameter to permit several statements.
func executeAll(t *testing.T, db testdb.Database, script string) {
	t.Helper()
	if db.Driver == "mysql" {
		db.DSN += "&multiStatements=true"
	}
	execute(t, db.OpenAnother(t), script)
}

func TestMigratingEverySourceOfAConfiguration(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "rowrelay.yaml")
	text := "sources:\n  a: {database: 'sqlite:" + folder + "/a.db'}\n  b: {database: 'sqlite:" + folder + "/b.db', table: events, claim: rows}\nsinks:\n  d: {type: discard}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := mustRun(t, "migrate", "up", "--config", file)
	if !strings.Contains(got.stdout, "outbox  1") || !strings.Contains(got.stdout, "events  1") {
		t.Errorf("stdout is %q", got.stdout)
	}
	for _, source := range []string{"a", "b"} {
		mustRun(t, "status", "--config", file, "--source", source)
	}
	mustRun(t, "run", "--config", file, "--drain")
	mustRun(t, "migrate", "down", "--config", file, "--source", "b")
	if gone := call(t.Context(), "", "status", "--config", file, "--source", "b"); gone.code != exitFailed {
		t.Errorf("the tables are still there: %s", gone.stdout)
	}
}

func TestMigratingAnInbox(t *testing.T) {
	t.Parallel()
	onEveryVersion(t, func(t *testing.T, db testdb.Database) {
		for _, step := range []struct {
			line, want string
		}{
			{"migrate status --inbox", "pending"},
			{"migrate up --inbox", "00001_inbox.sql"},
			{"migrate up --inbox", "the tables of inbox are up to date"},
			{"migrate status --inbox", "applied"},
			{"migrate status", "pending"}, // the status of the outbox
			{"migrate up --inbox --table received", "received"},
			{"migrate down --inbox", "reverted"},
			{"migrate status --inbox", "pending"},
			{"migrate status --inbox --table received", "applied"},
		} {
			if got := mustRun(t, append(strings.Fields(step.line), "--database", db.URL)...); !strings.Contains(got.stdout, step.want) {
				t.Errorf("%s: got %q, want %q in it", step.line, got.stdout, step.want)
			}
		}
		printed := mustRun(t, "migrate", "print", "--inbox", "--database", db.URL).stdout
		executeAll(t, db, printed)
		execute(t, db.DB, "INSERT INTO inbox (consumer, message_id) VALUES ('billing', 'a')")
	})
}

func TestInboxRefusesAConfiguration(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{"--config x.yaml", "--claim rows --database sqlite:x.db"} {
		line := "migrate up --inbox " + rest
		if got := call(t.Context(), "", strings.Fields(line)...); got.code != exitUsage || !strings.Contains(got.stderr, "--inbox can't be given with") {
			t.Errorf("%s: exit code %d, %q", line, got.code, got.stderr)
		}
	}
}

// The documentation's migrate print commands work without a server.
func TestMigratePrintNeedsOnlyTheScheme(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"postgres://", "mysql://", "mariadb://", "sqlserver://", "oracle://", "sqlite:", "sqlite://"} {
		for _, more := range [][]string{nil, {"--claim", "rows"}, {"--inbox"}, {"--table", "app.events"}} {
			arguments := append([]string{"migrate", "print", "--database", database}, more...)
			printed := mustRun(t, arguments...).stdout
			if !strings.Contains(printed, "CREATE TABLE") {
				t.Errorf("rowrelay %s printed %.200q", strings.Join(arguments, " "), printed)
			}
		}
	}
	for _, database := range []string{"sqlserver://", "sqlite:", "mysql://"} {
		if got := call(t.Context(), "", "status", "--database", database); got.code == 0 || !strings.Contains(got.stderr, "names no") {
			t.Errorf("status --database %s: %d, %s", database, got.code, got.stderr)
		}
	}
}

func TestPrintForATool(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, test := range []struct {
		line string
		code int
		want string
	}{
		{"--for goose", exitDone, "-- +goose StatementBegin\nCREATE FUNCTION outbox_set_lane()"},
		{"--for goose --down", exitUsage, "--down: a migration of goose has up and down in one file"},
		{"--for goose --table rowrelay.outbox --with-inbox", exitDone, "CREATE TABLE rowrelay.inbox"},
		{"--for flyway", exitDone, "CREATE TABLE outbox ("},
		{"--for flyway --down", exitDone, "\nDROP TABLE outbox;"},
		{"--for flyway --after " + strconv.Itoa(migrations.Version), exitDone, ""},
		{"--for flyway --dir " + filepath.Join(folder, "missing"), exitUsage, "create the folder, or correct its name"},
		{"--for prisma --inbox", exitDone, "CREATE TABLE inbox ("},
		{"--for alembic --dir " + folder, exitDone, "_rowrelay_outbox.py\n"},
		{"--for alembic --dir " + folder, exitUsage, "already has the revision"},
		{"--for alembic --after 1 --dir " + folder, exitUsage, "already has the revision"},
		{"--for alembic --down --dir " + folder, exitUsage, "--down can't be given with --dir"},
		{"--for sequelize", exitUsage, "it must be alembic, flyway, golang-migrate, goose, liquibase, prisma, rails or plain"},
		{"--down", exitUsage, "need --for"},
		{"--for flyway --inbox --notify", exitUsage, "--with-inbox"},
	} {
		got := call(t.Context(), "", strings.Fields("migrate print --database postgres: "+test.line)...)
		if got.code != test.code || !strings.Contains(got.stdout+got.stderr, test.want) {
			t.Errorf("migrate print %s: exit code %d, %q%q; want %d and %q", test.line, got.code, got.stdout, got.stderr, test.code, test.want)
		}
	}
}
