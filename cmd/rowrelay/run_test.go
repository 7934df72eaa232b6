package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

func TestRunDeliversMessages(t *testing.T) {
	t.Parallel()
	onEveryVersion(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL)
		endpoint := newWeb(t, always(http.StatusOK))
		mustCall(t, jsonLines("orders", 600, 7), "enqueue", "--database", db.URL, "--batch", "100")
		if before := statusOf(t, db); before.Pending != 600 || before.OldestPendingSeconds <= 0 || before.Claim != "" {
			t.Errorf("before the run the status is %+v", before)
		}
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		inOrder(t, drain(endpoint.arrived), 600, 7)
		after := statusOf(t, db)
		if after.Pending != 0 || after.Done != 600 || after.Claim != "lanes" || after.Lanes != 0 || len(after.Relays) != 0 {
			t.Errorf("after the run the status is %+v", after)
		}
	})
}

func TestClaimingByRows(t *testing.T) {
	t.Parallel()
	onEveryVersion(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL, "--claim", "rows")
		endpoint := newWeb(t, always(http.StatusOK))
		mustCall(t, jsonLines("a", 50, 1)+jsonLines("b", 50, 1), "enqueue", "--database", db.URL)
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--claim", "rows", "--pick", "newest", "--topics", "b", "--retention", "0",
			"--batch", "10", "--workers", "1", "--buffer", "10", "--drain")
		got := drain(endpoint.arrived)
		if len(got) != 50 {
			t.Fatalf("got %d messages, want those of b", len(got))
		}
		var first, last struct{ N int } // within one claim, messages may arrive in any order
		if err := errors.Join(json.Unmarshal([]byte(got[0].body), &first), json.Unmarshal([]byte(got[49].body), &last)); err != nil || first.N <= 40 || last.N > 10 {
			t.Errorf("got %+v first and %+v last, want the newest first (%v)", got[0], got[49], err)
		}
		if after := statusOf(t, db); after.Pending != 50 || after.Done != 0 || after.Claim != "rows" {
			t.Errorf("after the run the status is %+v", after)
		}
	})
}

// Expired messages are parked or discarded, as their route is configured. An expired message that an operator requeues is
// sent.
func TestExpiredMessages(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		endpoint := newWeb(t, always(http.StatusOK))
		file := configure(t, db, fmt.Sprintf(`
sinks:
  main: {type: http, url: %q}
routes:
  - {topic: kept, sink: main}
  - {topic: dropped, sink: main, expire_after: 1h, on_expire: discard}
`, endpoint.URL))
		expired := jsonLines("kept", 20, 3) + jsonLines("dropped", 30, 3)
		mustCall(t, expired, "enqueue", "--config", file, "--expires-at", "2026-01-31T12:00:00Z")
		mustCall(t, jsonLines("dropped", 7, 1), "enqueue", "--config", file, "--expire-after", "1h")
		for _, want := range []int{7, 20} { // the second drain sends the requeued messages
			mustRun(t, "run", "--config", file, "--drain")
			if got := drain(endpoint.arrived); len(got) != want {
				t.Errorf("got %d messages, want %d", len(got), want)
			}
			if want == 7 {
				if report := statusOf(t, db); report.Error != 20 || report.Done != 7 || report.Pending != 0 {
					t.Errorf("after the first run: %+v", report)
				}
				if got := mustRun(t, "messages", "requeue", "--error", "expired: since 2026-01-31T12:00:00Z, its expires_at", "--config", file).stdout; !strings.Contains(got, "20") {
					t.Errorf("requeued: %s", got)
				}
			}
		}
	})
}

func TestRunWithAConfiguration(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, db testdb.Database) {
		orders, rest := newWeb(t, always(http.StatusOK)), newWeb(t, always(http.StatusOK))
		file := configure(t, db, fmt.Sprintf(`
sinks:
  orders: {type: http, url: %q}
  rest: {type: http, url: %q, batch: 10}
routes:
  - {topic: orders, sink: orders}
  - {prefix: audit., sink: rest}
admin: {listen: "127.0.0.1:0"}
log: {format: json}
`, orders.URL, rest.URL))
		mustRun(t, "migrate", "up", "--config", file)
		d := start(t, "run", "--config", file)
		address := d.log.wait(t, `"msg":"serving admin requests","address":"([^"]+)"`)
		mustCall(t, `{"topic":"orders","payload":"1"}`+"\n"+`{"topic":"audit.x","payload":"2"}`+"\n"+`{"topic":"lost","payload":"hunter2"}`, "enqueue", "--config", file)
		if got := orders.next(t, orders.arrived); got.body != "1" {
			t.Errorf("orders got %+v", got)
		}
		if got := rest.next(t, rest.arrived); got.body != "2" {
			t.Errorf("rest got %+v", got)
		}
		for path, want := range map[string]string{
			"/metrics": `rowrelay_delivered_total{sink="orders",source="shop"} 1`,
			"/readyz":  "shop: ok",
			"/healthz": "ok",
			"/status":  `"source":"shop"`,
		} {
			pageShows(t, "http://"+address+path, want)
		}
		d.log.wait(t, "lost") // the warning about the topic "lost", which has no route
		code, logged := d.stop(t)
		if code != exitDone || strings.Contains(logged, "hunter2") || password(db) != "" && strings.Contains(logged, password(db)) {
			t.Errorf("exit code %d; the log must not contain a payload or a password:\n%s", code, logged)
		}
		if left := statusOf(t, db); left.Pending != 1 || left.PendingTopics["lost"] != 1 {
			t.Errorf("the status is %+v, want the message without a route pending", left)
		}
		for command, want := range map[string]string{
			"status": "PENDING TOPIC  OF THE FIRST 1000\nlost           1  no route\n",
			"check":  "note  source shop: topics: pending messages have no route: lost (1)\n",
		} {
			if got := call(t.Context(), "", command, "--config", file); got.code != exitDone || !strings.Contains(got.stdout, want) {
				t.Errorf("%s: exit code %d, want %q in\n%s%s", command, got.code, want, got.stdout, got.stderr)
			}
		}
	})
}

// A drain fails while messages without a route are left, and succeeds when no such messages are left.
func TestDrainReportsUnroutedTopics(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, db testdb.Database) {
		web := newWeb(t, always(http.StatusOK))
		file := configure(t, db, fmt.Sprintf("sinks:\n  orders: {type: http, url: %q}\nroutes:\n  - {topic: orders, sink: orders}\n", web.URL))
		mustRun(t, "migrate", "up", "--config", file)
		mustCall(t, `{"topic":"lost","key":"k","payload":"1"}`+"\n"+`{"topic":"orders","key":"k","payload":"2"}`, "enqueue", "--config", file)
		for n := range 3 {
			if got := call(t.Context(), "", "run", "--config", file, "--drain"); got.code != exitFailed || !strings.Contains(got.stderr, "lost") {
				t.Errorf("drain %d: exit code %d, want %d:\n%s", n+1, got.code, exitFailed, got.stderr)
			}
		}
		routed := configure(t, db, fmt.Sprintf("sinks:\n  orders: {type: http, url: %q}\n", web.URL))
		mustRun(t, "run", "--config", routed, "--drain")
		mustRun(t, "run", "--config", file, "--drain")
		if got := call(t.Context(), "", "check", "--config", file); !strings.Contains(got.stdout, "ok    source shop: topics: ") {
			t.Errorf("check: %s%s", got.stdout, got.stderr)
		}
	})
}

// configure writes a configuration with the database as the source shop.
func configure(t *testing.T, db testdb.Database, rest string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "url"), []byte(db.URL+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "rowrelay.yaml")
	if err := os.WriteFile(file, []byte("sources:\n  shop: {database_file: url}\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func password(db testdb.Database) string {
	parsed, err := url.Parse(db.URL)
	if err != nil {
		return ""
	}
	secret, _ := parsed.User.Password()
	return secret
}

// pageShows requests a page until it contains the text, because the relay counts a message shortly after the endpoint has
// received it.
func pageShows(t *testing.T, address, want string) {
	t.Helper()
	tick, limit := time.NewTicker(20*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		body := getPage(t, address)
		if strings.Contains(body, want) {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("the page %s doesn't contain %q in time: %s", address, want, body)
		}
	}
}

func getPage(t *testing.T, address string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestRelayWithOtherClaimDoesNotStart(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		endpoint := newWeb(t, always(http.StatusOK))
		first := start(t, "run", "--database", db.URL, "--sink", endpoint.URL)
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		endpoint.next(t, endpoint.arrived) // the relay is alive
		other := call(t.Context(), "", "run", "--database", db.URL, "--sink", endpoint.URL, "--claim", "rows")
		if other.code != exitFailed || !strings.Contains(other.stderr, "set the table's claim mode with --claim") ||
			!strings.Contains(other.stderr, "rowrelay status --database ") {
			t.Errorf("exit code %d, %q; want 1 and a hint", other.code, other.stderr)
		}
		if pw := password(db); pw != "" && strings.Contains(other.stderr, pw) {
			t.Errorf("the password is shown: %s", other.stderr)
		}
		if got := statusOf(t, db); len(got.Relays) != 1 || got.Claim != "lanes" || got.Lanes != 64 {
			t.Errorf("the status is %+v, want one relay with all lanes", got)
		}
		if code, logged := first.stop(t); code != exitDone {
			t.Errorf("the first ended with %d:\n%s", code, logged)
		}
	})
}

func TestSecondSignalAbortsTheDrain(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		hold := make(chan struct{})
		endpoint := newWeb(t, func(request) int { <-hold; return http.StatusOK })
		t.Cleanup(func() { close(hold) }) // runs before the cleanup that closes the endpoint
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		d := start(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain-timeout", "1h")
		endpoint.next(t, endpoint.requests)
		d.signal()
		d.log.wait(t, "stopping")
		close(d.second)
		_, logged := d.end(t)
		if !strings.Contains(logged, "aborting") {
			t.Errorf("the log:\n%s", logged)
		}
		if got := statusOf(t, db); got.Pending+got.Retry != 1 || got.Done != 0 || got.Lanes != 0 {
			t.Errorf("the status is %+v, want the message to be sent again and no lane leased", got)
		}
	})
}

func TestUnavailableEndpointChargesNoAttempt(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		var asked atomic.Int32
		endpoint := newWeb(t, func(request) int {
			if asked.Add(1) <= 3 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain", "--max-attempts", "1")
		if got := statusOf(t, db); got.Done != 1 || got.Error != 0 {
			t.Errorf("the status is %+v, want it delivered, not parked", got)
		}
	})
}

// While a sink is down, a drain without a limit would wait forever.
func TestADrainEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		endpoint := newWeb(t, always(http.StatusServiceUnavailable))
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		got := call(t.Context(), "", "run", "--database", db.URL, "--sink", endpoint.URL, "--drain", "--drain-limit", "2s")
		if got.code != exitFailed || !strings.Contains(got.stderr, "was not finished after 2s") || !strings.Contains(got.stderr, "rowrelay status") {
			t.Errorf("exit code %d, %q", got.code, got.stderr)
		}
		if got := statusOf(t, db); got.Pending != 1 || got.Lanes != 0 {
			t.Errorf("the status is %+v, want the message to be there and no lane leased", got)
		}
		mustRun(t, "run", "--database", db.URL, "--sink", "discard:", "--drain", "--drain-limit", "10m")
		if got := statusOf(t, db); got.Done != 1 {
			t.Errorf("the status is %+v, want it delivered", got)
		}
	})
}

func TestDrainLimitNeedsDrain(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"--drain-limit 1m", "--drain --drain-limit -1s"} {
		got := call(t.Context(), "", strings.Fields("run --database sqlite:x.db --sink discard: "+flags)...)
		if got.code != exitUsage || !strings.Contains(got.stderr, "--drain-limit needs --drain") {
			t.Errorf("%s: exit code %d, %q", flags, got.code, got.stderr)
		}
	}
}

// A hint has the flags --config and --source if there is a configuration, because the hint can't show a URL with its
// password.
func TestAHintNamesTheConfiguration(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "rowrelay.yaml")
	for name, text := range map[string]string{
		"rowrelay.yaml": "sources: {shop: {database: 'sqlite:" + filepath.Join(folder, "empty.db") + "'}}\nsinks: {out: {type: discard}}\n",
		"empty.db":      "",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{"run", "status", "messages list"} {
		got := call(t.Context(), "", append(strings.Fields(line), "--config", file)...)
		if want := "\n  run rowrelay migrate up --config " + file + " --source shop\n"; got.code != exitFailed || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit code %d, %s; want 1 and %q", line, got.code, got.stderr, want)
		}
	}
}

func TestARefusedSecretsHintNamesTheSetting(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		for setting, source := range map[string]string{
			"sources.shop.password_command": "{database: '" + db.URL + "', password_command: [echo, hunter2]}",
			"sources.shop.database_command": "{database_command: [echo, '" + withURL(t, db, func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "hunter2") }) + "']}",
		} {
			file := filepath.Join(t.TempDir(), "rowrelay.yaml")
			if err := os.WriteFile(file, []byte("sources: {shop: "+source+"}\nsinks: {out: {type: discard}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			got := call(t.Context(), "", "run", "--config", file)
			if got.code != exitFailed || !strings.Contains(got.stderr, "check the user of the URL, and the secret of "+setting) || strings.Contains(got.stderr, "hunter2") {
				t.Errorf("%s: exit code %d, %s", setting, got.code, got.stderr)
			}
		}
	}, "postgres18/pgx", "mysql/gosql")
}

func TestDatabaseErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, db testdb.Database) {
		cases := map[string]struct{ url, want string }{
			"no tables": {db.URL, "run rowrelay migrate up --database "},
		}
		if db.Kind != testdb.SQLite {
			cases["a wrong password"] = struct{ url, want string }{withURL(t, db, func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "hunter2") }),
				"the server refuses the password"}
			cases["no such database"] = struct{ url, want string }{withURL(t, db, func(u *url.URL) { u.Path += "_no" }), "the database doesn't exist"}
			cases["no such user"] = struct{ url, want string }{withURL(t, db, func(u *url.URL) { u.User = url.UserPassword("nobody", "hunter2") }), "the server refuses the "}
		}
		for name, test := range cases {
			for _, line := range []string{"run --sink discard:", "status", "enqueue", "messages list", "check"} {
				got := call(t.Context(), `{"topic":"a"}`, append(strings.Fields(line), "--database", test.url)...)
				if got.code != exitFailed || !strings.Contains(got.stderr+got.stdout, test.want) {
					t.Errorf("%s: %s: exit code %d, %s%s; want 1 and %q", name, line, got.code, got.stdout, got.stderr, test.want)
				}
				if pw := password(db); strings.Contains(got.stderr+got.stdout, "hunter2") || pw != "" && strings.Contains(got.stderr+got.stdout, pw) {
					t.Errorf("%s: %s: the password is shown: %s", name, line, got.stderr)
				}
				if said := regexp.MustCompile(`Options\.|App\.|package |dialect\.`).FindString(got.stderr + got.stdout); said != "" {
					t.Errorf("%s: %s: the error names a Go identifier, %q: %s%s", name, line, said, got.stdout, got.stderr)
				}
			}
		}
	})
}

func withURL(t *testing.T, db testdb.Database, change func(*url.URL)) string {
	t.Helper()
	parsed, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal("the URL is malformed")
	}
	change(parsed)
	return parsed.String()
}

func TestAnotherTableInItsOwnSchema(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, db testdb.Database) {
		table := "main.events"
		switch db.Kind {
		case testdb.Postgres:
			table = "Sales.Events"
			execute(t, db.DB, `CREATE SCHEMA "Sales"`)
		case testdb.MariaDB: // on MariaDB, a schema is a database
			schema := "Sales_" + rand.Text()[:8]
			table = schema + ".Events"
			execute(t, db.DB, "CREATE DATABASE "+schema)
			t.Cleanup(func() { executeAtEnd(t, db.DB, "DROP DATABASE "+schema) })
		}
		flags := []string{"--database", db.URL, "--table", table}
		mustRun(t, append([]string{"migrate", "up"}, flags...)...)
		mustCall(t, `{"topic":"a","payload":"b"}`, append([]string{"enqueue"}, flags...)...)
		got := mustRun(t, append([]string{"run", "--sink", "stdout:", "--drain"}, flags...)...)
		var line struct{ Topic, Payload string }
		if err := json.Unmarshal([]byte(got.stdout), &line); err != nil || line.Topic != "a" || line.Payload != "b" {
			t.Errorf("got %q, %v", got.stdout, err)
		}
		if missing := call(t.Context(), "", "status", "--database", db.URL); missing.code != exitFailed {
			t.Errorf("the table outbox exists, too: %s", missing.stdout)
		}
	})
}

// executeAtEnd executes a statement in a cleanup, when the test's context has ended.
func executeAtEnd(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Error(err)
	}
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
