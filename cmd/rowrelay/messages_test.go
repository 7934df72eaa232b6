package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// parked delivers one message and parks three: two with topic orders, for the keys a and b, and one with
// topic mail, for the key a.
func parked(t *testing.T, db testdb.Database) {
	t.Helper()
	const input = `{"topic":"orders","key":"a","payload":"hunter2-1"}
{"topic":"orders","key":"b","payload":"hunter2-2"}
{"topic":"mails","key":"a","payload":"hunter2-3","headers":{"X-A":"b"}}
{"topic":"fine","key":"c","payload":"hunter2-4"}
`
	mustCall(t, input, "enqueue", "--database", db.URL)
	endpoint := newWeb(t, func(r request) int {
		if r.topic == "fine" {
			return http.StatusOK
		}
		return http.StatusBadRequest
	})
	drainAtOnce(t, db, endpoint.URL)
	if got := statusOf(t, db); got.Error != 3 || got.Done != 1 {
		t.Fatalf("the status is %+v, want three parked and one done", got)
	}
}

// drainAtOnce delivers all messages. With judge_alone_after: 0s, the first rejection parks a message.
func drainAtOnce(t *testing.T, db testdb.Database, url string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rowrelay.yaml")
	text := fmt.Sprintf("sources:\n  main: {database: %q}\nsinks:\n  http: {type: http, url: %q, judge_alone_after: 0s}\n", db.URL, url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "run", "--config", file, "--drain")
}

func list(t *testing.T, db testdb.Database, args ...string) (found []operate.Message) {
	t.Helper()
	got := mustRun(t, append([]string{"messages", "list", "--json", "--database", db.URL}, args...)...)
	if err := json.Unmarshal([]byte(got.stdout), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestListingByFilter(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		all := list(t, db)
		if len(all) != 4 {
			t.Fatalf("%d messages, want 4", len(all))
		}
		for filter, want := range map[string]int{
			"--topic orders":         2,
			"--topic order":          0,
			"--key a":                2,
			"--topic orders --key a": 1,
			"--state error":          3,
			"--state done":           1,
			"--state pending":        0,
			"--since 1h":             4,
			"--since " + time.Now().Add(time.Hour).UTC().Format(time.RFC3339): 0,
			"--error 400":                     3,
			"--error %":                       0,
			"--limit 2":                       2,
			fmt.Sprint("--after ", all[1].ID): 2,
			fmt.Sprint(all[0].ID):             1,
			all[2].MessageID + " " + fmt.Sprint(all[3].ID): 2,
			strings.ToUpper(all[2].MessageID):              1,
			"987654321":                                    0,
		} {
			if got := list(t, db, strings.Fields(filter)...); len(got) != want {
				t.Errorf("%s: %d messages, want %d", filter, len(got), want)
			}
		}
		for _, flags := range [][]string{{}, {"--json"}} {
			got := mustRun(t, append([]string{"messages", "list", "--database", db.URL}, flags...)...)
			if strings.Contains(got.stdout, "hunter2") || !strings.Contains(got.stdout, "mails") {
				t.Errorf("a list must show messages without payloads: %s", got.stdout)
			}
		}
	})
}

func TestShowing(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		mail := list(t, db, "--topic", "mails")[0]
		text := mustRun(t, "messages", "show", mail.MessageID, "--database", db.URL).stdout
		for _, want := range []string{"hunter2-3", "header X-A  b", "state       error", "last error", mail.MessageID} {
			if !strings.Contains(text, want) {
				t.Errorf("%q isn't in\n%s", want, text)
			}
		}
		if !regexp.MustCompile(`(?s)FAILED ATTEMPT +SINK +RELAY +AFTER +ANSWER\n20\S+Z +\S+ +\S+ +\d\S*s +\w+`).MatchString(text) {
			t.Errorf("the failed attempts aren't in\n%s", text)
		}
		var full operate.FullMessage
		got := mustRun(t, "messages", "show", fmt.Sprint(mail.ID), "--json", "--database", db.URL)
		if err := json.Unmarshal([]byte(got.stdout), &full); err != nil || full.Payload == nil || *full.Payload != "hunter2-3" || full.Headers["X-A"] != "b" || full.LastError == "" || len(full.AttemptLog) == 0 {
			t.Errorf("got %+v, %v", full, err)
		}
		missing := call(t.Context(), "", "messages", "show", "987654321", "--database", db.URL)
		if missing.code != exitFailed || !strings.Contains(missing.stderr, "message 987654321 doesn't exist") {
			t.Errorf("exit code %d, %q", missing.code, missing.stderr)
		}
	})
}

// If the sinks of a message have different outcomes, its rows can be listed and changed by sink.
func TestMessagesOfSeveralSinks(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		if got := mustRun(t, "messages", "list", "--database", db.URL); strings.Contains(got.stdout, "SINKS") {
			t.Errorf("sinks are shown where no message has any: %s", got.stdout)
		}
		all := list(t, db, "--state", "error")
		execute(t, db.DB, "UPDATE outbox_held SET sinks = 'web,queue' WHERE topic = 'mails'")
		execute(t, db.DB, "UPDATE outbox_held SET sinks = 'queue2' WHERE topic = 'orders' AND message_key = 'a'")
		if got := mustRun(t, "messages", "list", "--database", db.URL); !strings.Contains(got.stdout, "SINKS") || !strings.Contains(got.stdout, "web,queue") {
			t.Errorf("sinks aren't shown: %s", got.stdout)
		}
		if got := list(t, db, "--sink", "queue"); len(got) != 1 || got[0].MessageID != all[2].MessageID || strings.Join(got[0].Sinks, " ") != "web queue" {
			t.Errorf("messages of sink queue: %+v, want one of web and queue", got)
		}
		if got := mustRun(t, "messages", "show", all[2].MessageID, "--database", db.URL); !strings.Contains(got.stdout, "web,queue") {
			t.Errorf("a message is shown without its sinks: %s", got.stdout)
		}
		if got := mustRun(t, "messages", "requeue", "--sink", "queue", "--database", db.URL); got.stdout != "requeued 1\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
		if got := mustRun(t, "messages", "discard", "--yes", "--sink", "queue2", "--database", db.URL); got.stdout != "discarded 1\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
		if got := list(t, db, "--state", "error"); len(got) != 1 || got[0].MessageID != all[1].MessageID {
			t.Errorf("left parked: %+v, want the one without sinks", got)
		}
	})
}

func TestRequeueAndDiscard(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		first := list(t, db, "--topic", "orders", "--key", "a")[0]
		if got := mustRun(t, "messages", "requeue", fmt.Sprint(first.ID), "--database", db.URL); got.stdout != "requeued 1\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
		again := call(t.Context(), "", "messages", "requeue", fmt.Sprint(first.ID), first.MessageID, "987654321", "--database", db.URL)
		if again.code != exitFailed || !strings.Contains(again.stderr, "0 of 3 messages were requeued: the others don't exist, or aren't parked") {
			t.Errorf("exit code %d, %q", again.code, again.stderr)
		}
		if got := mustRun(t, "messages", "discard", "--yes", "--topic", "orders", "--since", "1h", "--error", "400", "--json", "--database", db.URL); got.stdout != "{\n  \"discarded\": 1\n}\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
		if got := mustRun(t, "messages", "requeue", "--all", "--database", db.URL); got.stdout != "requeued 1\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
		if got := mustRun(t, "messages", "discard", "--all", "--yes", "--database", db.URL); got.stdout != "discarded 0\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
		endpoint := newWeb(t, always(http.StatusOK))
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		var bodies []string
		for _, r := range drain(endpoint.arrived) {
			bodies = append(bodies, r.body)
		}
		if strings.Join(bodies, " ") != "hunter2-1 hunter2-3" {
			t.Errorf("got %v, want the two that were requeued, in order", bodies)
		}
		if got := statusOf(t, db); got.Done != 3 || got.Error != 0 {
			t.Errorf("the status is %+v", got)
		}
	})
}

func TestRequeueWithALiveRelay(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		endpoint := newWeb(t, always(http.StatusOK))
		d := start(t, "run", "--database", db.URL, "--sink", endpoint.URL)
		mustCall(t, `{"topic":"first"}`, "enqueue", "--database", db.URL)
		endpoint.next(t, endpoint.arrived) // the relay is alive
		mustRun(t, "messages", "requeue", "--topic", "orders", "--database", db.URL)
		got := []string{endpoint.next(t, endpoint.arrived).body, endpoint.next(t, endpoint.arrived).body}
		if strings.Join(got, " ") != "hunter2-1 hunter2-2" && strings.Join(got, " ") != "hunter2-2 hunter2-1" {
			t.Errorf("got %v", got)
		}
		if code, logged := d.stop(t); code != exitDone {
			t.Errorf("exit code %d:\n%s", code, logged)
		}
	})
}

// A list of messages with large payloads never has all payloads in memory, and is complete.
func TestListingOfLargeMessages(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	for range 20 {
		db.Write(outbox.Message{Topic: "large", Payload: make([]byte, 1000)})
	}
	for limit, want := range map[int]int{100: 20, 20: 20, 17: 17, 8: 8, 3: 3} {
		found, err := operate.List(t.Context(), db.Store(), storage.Filter{Limit: limit, MaxBytes: 7500})
		if err != nil || len(found) != want {
			t.Errorf("--limit %d: %d messages, %v, want %d", limit, len(found), err, want)
		}
		for i, info := range found {
			if info.ID != int64(i+1) || info.Message.Payload != nil {
				t.Errorf("message %d is listed in place %d, with %d bytes", info.ID, i, len(info.Message.Payload))
			}
		}
	}
}

// If a search ends before it has read all rows, a line reports how far the search got and how to
// continue.
func TestFindingInALargeTable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		found storage.Found
		all   bool
		want  string
	}{
		"all rows":          {storage.Found{Infos: make([]storage.Info, 1), Until: 9, Last: 9}, false, ""},
		"some, and found":   {storage.Found{Infos: make([]storage.Info, 1), Until: 7, Last: 9}, false, "up to id 7 of 9: later rows may contain more matches, such as a replay's copies; continue with --after 7, or"},
		"some, and nothing": {storage.Found{Until: 7, Last: 9}, false, "up to id 7 of 9: a later row may contain the message; continue with --after 7, or"},
		"as many as wanted": {storage.Found{Infos: make([]storage.Info, 5), Until: 7, Last: 9}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr strings.Builder
			m := &messages{program: program{stderr: &stderr}}
			operator := &seeker{found: test.found}
			found, err := m.find(t.Context(), operator, storage.Filter{IDs: []string{"x"}, Limit: 5}, test.all)
			if err != nil || len(found.Infos) != len(test.found.Infos) || (operator.patience == 0) != test.all {
				t.Errorf("got %+v, %v, after %v", found, err, operator.patience)
			}
			if got := stderr.String(); test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// seeker is an Operator whose Find always returns the same result.
type seeker struct {
	storage.Operator
	found    storage.Found
	patience time.Duration
}

func (s *seeker) Find(_ context.Context, _ storage.Filter, patience time.Duration) (storage.Found, error) {
	s.patience = patience
	return s.found, nil
}

// A list that reaches its limit says how to continue.
func TestListThatReachesItsLimit(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		list := func(limit string) (stdout, stderr string) {
			got := call(t.Context(), "", "messages", "list", "--limit", limit, "--json", "--database", db.URL)
			return got.stdout, got.stderr
		}
		whole, told := list("5")
		if told != "" {
			t.Errorf("a list below its limit prints %q", told)
		}
		var ids []struct{ ID int64 }
		if err := json.Unmarshal([]byte(whole), &ids); err != nil || len(ids) != 4 {
			t.Fatalf("the list has %d messages (%v): %s", len(ids), err, whole)
		}
		if _, told := list("3"); !strings.Contains(told, fmt.Sprintf("listed 3 messages, the maximum that --limit permits: continue with --after %d,", ids[2].ID)) {
			t.Errorf("a list at its limit prints %q", told)
		}
	})
}
