package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

func TestCheckWithoutProblems(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		file := configure(t, db, "sinks:\n  lines: {type: stdout}\n")
		got := checked(t, "--config", file)
		for _, want := range []string{"ok    config: ", "ok    source shop: connection: ", "ok    source shop: schema: table outbox", "ok    source shop: claim: by lanes", "ok    source shop: sink lines: can be opened"} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%q isn't in\n%s", want, got.stdout)
			}
		}
		if pw := password(db); strings.Contains(got.stdout, "FAIL") || pw != "" && strings.Contains(got.stdout, pw) {
			t.Errorf("stdout is %s", got.stdout)
		}
		var report struct {
			OK     bool
			Checks []sqlstore.Finding
		}
		asJSON := checked(t, "--json", "--config", file)
		if err := json.Unmarshal([]byte(asJSON.stdout), &report); err != nil || !report.OK || len(report.Checks) < 5 {
			t.Errorf("got %s, %v", asJSON.stdout, err)
		}
	})
}

func TestCheckReportsFailures(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, db testdb.Database) {
		file := configure(t, db, "sinks:\n  lines: {type: file, path: /nowhere/at/all}\n")
		got := call(t.Context(), "", "check", "--config", file)
		for _, want := range []string{"FAIL  source shop: schema: ", "\n      run rowrelay migrate up --config ", "FAIL  source shop: sink lines: "} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%q isn't in\n%s", want, got.stdout)
			}
		}
		if got.code != exitFailed || !strings.Contains(got.stderr, "2 of 4 checks failed") {
			t.Errorf("exit code %d, %q", got.code, got.stderr)
		}
	})
}

func TestCheckReportsUnreachableEndpoint(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		here := newWeb(t, always(200))
		file := configure(t, db, fmt.Sprintf("sinks:\n  here: {type: http, url: %q}\n  gone: {type: http, url: %q}\nroutes: [{topic: a, sink: here}, {topic: b, sink: gone}]\n", here.URL, "http://"+nobody))
		got := call(t.Context(), "", "check", "--config", file)
		for _, want := range []string{"ok    source shop: sink here: can be reached", "FAIL  source shop: sink gone: ", "refused"} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%q isn't in\n%s", want, got.stdout)
			}
		}
		if got.code != exitFailed || len(here.requests) > 0 {
			t.Errorf("exit code %d, %q; %d requests were sent", got.code, got.stderr, len(here.requests))
		}
	})
}

func TestCheckReportsAllConfigurationProblems(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rowrelay.yaml")
	if err := os.WriteFile(file, []byte(invalid), 0o600); err != nil {
		t.Fatal(err)
	}
	got := call(t.Context(), "", "check", "--config", file)
	if got.code != exitFailed || strings.Count(got.stdout, "FAIL  config: "+file) != 2 || !strings.Contains(got.stdout, ":2:42: ") {
		t.Errorf("exit code %d, %s", got.code, got.stdout)
	}
	if missing := call(t.Context(), "", "check", "--config", file+".no"); missing.code != exitFailed || !strings.Contains(missing.stdout, "FAIL  config: ") {
		t.Errorf("exit code %d, %s", missing.code, missing.stdout)
	}
}

// checked runs check, which must find no problem. It may print notes, which other tests on the same server can cause.
func checked(t *testing.T, args ...string) result {
	t.Helper()
	got := call(t.Context(), "", append([]string{"check"}, args...)...)
	if got.code != exitDone {
		t.Fatalf("rowrelay check %s: exit code %d\n%s%s", strings.Join(args, " "), got.code, got.stdout, got.stderr)
	}
	return got
}

func TestCheckReportsOtherClaim(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		d := start(t, "run", "--database", db.URL, "--sink", "stdout:")
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		d.stdout.wait(t, `"topic":"a"`) // the relay is alive
		got := call(t.Context(), "", "check", "--database", db.URL, "--claim", "rows")
		if got.code != exitFailed || !strings.Contains(got.stdout, "FAIL  source outbox: claim: the relay ") || !strings.Contains(got.stdout, "--claim") {
			t.Errorf("exit code %d, %s", got.code, got.stdout)
		}
		checked(t, "--database", db.URL, "--claim", "lanes", "--sink", "stdout:")
		if code, logged := d.stop(t); code != exitDone {
			t.Errorf("exit code %d:\n%s", code, logged)
		}
	})
}

// Before a relay is started, check reports that the relay would wait because live relays have other sinks or
// routes. The finding names those relays and the differences, and has a hint.
func TestCheckReportsThatARelayWouldWait(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		lines := "sinks:\n  lines: {type: stdout}\n"
		live := configure(t, db, lines)
		if got := checked(t, "--config", live); !strings.Contains(got.stdout, "ok    source shop: relays: 0 live") {
			t.Errorf("without a live relay, check prints\n%s", got.stdout)
		}
		d := start(t, "run", "--config", live)
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		d.stdout.wait(t, `"topic":"a"`) // the relay is alive
		name := statusOf(t, db).Relays[0].Name

		if got := checked(t, "--config", live); !strings.Contains(got.stdout, "ok    source shop: relays: 1 live") {
			t.Errorf("with a live relay of the same configuration, check prints\n%s", got.stdout)
		}
		for _, test := range []struct{ more, has, others string }{
			{"sinks:\n  lines: {type: file, path: " + filepath.Join(t.TempDir(), "lines") + "}\n", "This relay has: sink lines: file ", name + " has: sink lines: stdout"},
			{lines + "routes: [{topic: b, sink: lines}]\n", "This relay has: route topic b to lines", name + " has: route topic * to lines"},
		} {
			other := configure(t, db, test.more)
			got := checked(t, "--config", other)
			for _, want := range []string{"note  source shop: relays: a relay of this configuration would wait", "the active relays of this table: " + name, test.has, test.others, "\n      stop the other relays first", "join: true"} {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("%q isn't in\n%s", want, got.stdout)
				}
			}
			if strict := call(t.Context(), "", "check", "--config", other, "--strict"); !strings.Contains(strict.stdout, "FAIL  source shop: relays: ") || strict.code != exitFailed {
				t.Errorf("with --strict: exit code %d\n%s", strict.code, strict.stdout)
			}
			if asJSON := checked(t, "--config", other, "--json"); !strings.Contains(asJSON.stdout, `"note": true`) {
				t.Errorf("as JSON:\n%s", asJSON.stdout)
			}
			content, err := os.ReadFile(other)
			if err == nil {
				err = os.WriteFile(other, []byte(strings.Replace(string(content), "url}", "url, join: true}", 1)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			checked(t, "--config", other)
		}
		got := call(t.Context(), "", "check", "--database", db.URL, "--sink", "file:"+filepath.Join(t.TempDir(), "lines"))
		if !strings.Contains(got.stdout, "note  source outbox: relays: ") {
			t.Errorf("with --sink:\n%s", got.stdout)
		}
		if code, logged := d.stop(t); code != exitDone {
			t.Errorf("exit code %d:\n%s", code, logged)
		}
	})
}

// check reports delivered messages that are older than the configuration's retention.
func TestCheckReportsUndeletedMessages(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		if _, err := db.DB.ExecContext(t.Context(), "INSERT INTO outbox_done (id, lane, message_id, topic, priority, attempts, crashes, created_at, finished_at) "+
			"VALUES (1, 1, '0197a3b4-0000-7abc-8def-0123456789ab', 't', 0, 1, 0, '2024-01-01 00:00:00.000', '2024-01-01 00:00:00.000')"); err != nil {
			t.Fatal(err)
		}
		for retention, want := range map[string]string{"1h": "note  source shop: retention: ", "3650d": "ok    source shop: retention: "} {
			file := configure(t, db, "sinks:\n  lines: {type: stdout}\n")
			content, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(file, []byte(strings.Replace(string(content), "url}", "url, retention: "+retention+"}", 1)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := call(t.Context(), "", "check", "--config", file); !strings.Contains(got.stdout, want) {
				t.Errorf("with a retention of %s got %s, want %s", retention, got.stdout, want)
			}
		}
	})
}

// check reports parked messages, without failing.
func TestCheckReportsParkedMessages(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		reports := func(want string) {
			t.Helper()
			if got := call(t.Context(), "", "check", "--database", db.URL); got.code != exitDone || !strings.Contains(got.stdout, want) {
				t.Errorf("exit code %d, want %q in\n%s%s", got.code, want, got.stdout, got.stderr)
			}
		}
		reports("ok    source outbox: parked: no message is parked\n")
		parked(t, db)
		reports("note  source outbox: parked: 3 messages are parked\n")
	})
}

// A relay restores missing rows of lanes when it starts; check only reports them.
func TestCheckRestoresNothing(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		if _, err := db.DB.ExecContext(t.Context(), "DELETE FROM outbox_lanes WHERE lane = 5"); err != nil {
			t.Fatal(err)
		}
		got := call(t.Context(), "", "check", "--database", db.URL)
		if !strings.Contains(got.stdout, "FAIL  source outbox: rows: table ") || !strings.Contains(got.stdout, "63 of its 64 rows") || got.code != exitFailed {
			t.Errorf("exit code %d, %s", got.code, got.stdout)
		}
		var lanes int
		if err := db.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_lanes").Scan(&lanes); err != nil || lanes != 63 {
			t.Errorf("%d lanes after the check, want 63; %v", lanes, err)
		}
	})
}

func TestCheckCreatesNothing(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		lines := filepath.Join(t.TempDir(), "lines.jsonl")
		checked(t, "--config", configure(t, db, fmt.Sprintf("sinks:\n  lines: {type: file, path: %q}\n", lines)))
		if _, err := os.Stat(lines); !os.IsNotExist(err) {
			t.Errorf("check has made the sink's file: %v", err)
		}
	})
}

// If only a program that prints a secret has failed, the exit code isn't that of a wrong configuration, so that systemd restarts
// the relay.
func TestExitCodeOfFailedCommands(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]int{
		"password_command: [sh, -c, exit 3]":           exitFailed,
		"password_command: [sh, -c, exit 3], lease: 1": exitUsage,
		"password_command: exit":                       exitUsage,
	} {
		file := filepath.Join(t.TempDir(), "rowrelay.yaml")
		if err := os.WriteFile(file, []byte("sources: {s: {database: 'postgres://u@127.0.0.1:1/d', "+settings+"}}\nsinks: {n: {type: discard}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"run", "status"} {
			if got := call(t.Context(), "", command, "--config", file); got.code != want || !strings.Contains(got.stderr, "sources.s.password_command: ") {
				t.Errorf("%s with %s: exit code %d, want %d: %s", command, settings, got.code, want, got.stderr)
			}
		}
	}
}
