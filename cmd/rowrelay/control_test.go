package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Paused messages aren't sent. status lists the pause, and the log of actions has its author. A drain reports the
// messages that it leaves undelivered.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		endpoint := newWeb(t, func(r request) int {
			if r.topic == "bad" {
				return http.StatusBadRequest
			}
			return http.StatusOK
		})
		mustCall(t, `{"topic":"orders","key":"a","payload":"1"}`+"\n", "enqueue", "--database", db.URL)
		drain := func() result {
			return call(t.Context(), "", "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		}
		for _, what := range []string{"topic orders", "key a"} {
			args := strings.Fields(what)
			got := mustRun(t, append([]string{"pause", "--database", db.URL, "--for", "2h", "--by", "ann", "--reason", "it is wrong"}, args...)...)
			if got.stdout != "paused "+what+" for 2h0m0s\n" {
				t.Errorf("pause prints %q", got.stdout)
			}
			if got := drain(); got.code != exitFailed || !strings.Contains(got.stderr, what) {
				t.Errorf("a drain that left messages: %d, %s", got.code, got.stderr)
			}
			if got := mustRun(t, "status", "--database", db.URL).stdout; !strings.Contains(got, "paused "+args[0]) || !strings.Contains(got, "ann") {
				t.Errorf("status shows no pause: %s", got)
			}
			mustRun(t, append([]string{"resume", "--database", db.URL}, args...)...)
			if got := call(t.Context(), "", append([]string{"resume", "--database", db.URL}, args...)...); got.code != exitFailed || !strings.Contains(got.stderr, "was not paused") {
				t.Errorf("resuming twice: %d, %s", got.code, got.stderr)
			}
		}
		if got := drain(); got.code != exitDone {
			t.Errorf("a drain after the pauses: %d, %s", got.code, got.stderr)
		}
		mustRun(t, "limit", "sink", "http", "100/s", "--database", db.URL)
		mustRun(t, "unlimit", "sink", "http", "--database", db.URL)
		mustRun(t, "messages", "discard", "--all", "--yes", "--database", db.URL, "--by", "mallory") // changes nothing, and so isn't logged
		mustCall(t, `{"topic":"bad"}`, "enqueue", "--database", db.URL)
		drainAtOnce(t, db, endpoint.URL)
		mustRun(t, "messages", "discard", "--all", "--yes", "--database", db.URL, "--by", "eve")
		var actions []storage.Action
		if err := json.Unmarshal([]byte(mustRun(t, "actions", "--json", "--database", db.URL).stdout), &actions); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, a := range actions {
			said = append(said, a.Action+" "+a.Target)
			if a.By == "" || a.By == "mallory" || a.Changed != 1 {
				t.Errorf("action %+v", a)
			}
		}
		want := "discard all; unlimit sink http; limit sink http 100/s; resume key a; pause key a for 2h0m0s; resume topic orders; pause topic orders for 2h0m0s"
		if got := strings.Join(said, "; "); got != want {
			t.Errorf("the log is %s; want %s", got, want)
		}
	})
}

func TestPauseRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"pause":                                  "wrong arguments",
		"pause sink":                             "wrong arguments",
		"pause sinks a":                          "wrong arguments",
		"pause sink a --for 2h --until 14:00":    "not both",
		"pause sink a --for never":               "isn't a duration",
		"pause sink a --until 2001-01-01T00:00Z": "isn't a future time",
		"limit sink a":                           "RATE",
		"limit sink a -5/s":                      "",
		"limit sink a 0":                         "RATE",
		"unlimit topic a":                        "wrong arguments",
	} {
		if got := call(t.Context(), "", strings.Fields(args)...); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %d, %s; want %q", args, got.code, got.stderr, want)
		}
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 13, 30, 0, 0, time.UTC)
	for until, want := range map[string]time.Duration{
		"14:00": 30 * time.Minute, "13:00": 23*time.Hour + 30*time.Minute, "2026-01-31T13:31:00Z": time.Minute, "": 0,
	} {
		s := steering{until: until}
		if got, err := s.lasts(now); got != want || err != nil {
			t.Errorf("--until %s lasts %v, %v; want %v", until, got, err, want)
		}
	}
}

// While relays are alive, a pause or a limit for an unknown sink or relay is refused. The error lists the known
// names.
func TestPauseRefusesUnknownNames(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "pause", "sink", "early", "--database", db.URL) // this sink belongs to a relay that starts later
		mustRun(t, "resume", "sink", "early", "--database", db.URL)
		endpoint := newWeb(t, always(http.StatusOK))
		mustCall(t, jsonLines("orders", 1, 1), "enqueue", "--database", db.URL)
		start(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--name", "r1")
		endpoint.next(t, endpoint.arrived) // the relay has published its sinks
		for _, args := range [][]string{{"pause", "sink", "typo"}, {"limit", "sink", "typo", "5"}, {"pause", "relay", "typo"}} {
			if got := call(t.Context(), "", append(args, "--database", db.URL)...); got.code != exitUsage || !strings.Contains(got.stderr, "no relay has this name or sink: known are ") {
				t.Errorf("%v: %d, %s", args, got.code, got.stderr)
			}
		}
		for _, args := range [][]string{{"pause", "topic", "orders.*"}, {"messages", "requeue", "--topic", "orders.*"}, {"messages", "replay", "--topic", "orders.*"}, {"tail", "--topic", "orders.*"}} {
			if got := call(t.Context(), "", append(args, "--database", db.URL)...); got.code != exitUsage || !strings.Contains(got.stderr, "wildcards") {
				t.Errorf("%q: exit code %d, %s", args, got.code, got.stderr)
			}
		}
		if got := call(t.Context(), "", "resume", "topic", "orders.*", "--database", db.URL); strings.Contains(got.stderr, "wildcards") {
			t.Errorf("a pause with a wildcard could not be ended: %s", got.stderr)
		}
		mustRun(t, "pause", "topic", "any", "--database", db.URL)
		if status := statusOf(t, db); len(status.Controls) != 1 {
			t.Errorf("in force are %+v", status.Controls)
		}
	})
}
