package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

var rows = flag.Int("rows", 3_000, "number of messages that wait while an operator looks at the table; the proof has 10 million")

// Operators' calls, such as the page, the status and listings, are fast on a table of any size.
// For every ten waiting messages the table has three delivered ones, and for every thirty it has
// one parked message. The servers' logs show which statements were slow.
func TestOperatorCallsAreFastWithManyRows(t *testing.T) {
	t.Parallel()
	const slow = "200" // milliseconds
	type server struct {
		name, kind string
		options    []string
	}
	for _, on := range drawn(
		server{"postgres15", testdb.Postgres, []string{"-c", "shared_buffers=512MB", "-c", "max_wal_size=16GB", "-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "log_min_duration_statement=" + slow}},
		server{"mysql", testdb.MySQL, []string{"--innodb-buffer-pool-size=1G", "--disable-log-bin", "--slow-query-log=1", "--long-query-time=0." + slow, "--slow-query-log-file=log.err"}},
		server{"mariadb1011", testdb.MariaDB, []string{"--innodb-buffer-pool-size=1G", "--slow-query-log=1", "--long-query-time=0." + slow, "--slow-query-log-file=log.err"}},
		server{"sqlite", testdb.SQLite, nil},
	) {
		t.Run(on.name, func(t *testing.T) {
			if !*long {
				t.Parallel() // with -long the tests are sequential, because they have limits on times
			}
			s, said := &scene{}, func() string { return "" }
			if on.kind == testdb.SQLite {
				s = newScene(t, "sqlite/modernc")
			} else {
				server := newOwn(t, on.name, on.kind, on.options...)
				server.start()
				s = server.scene(server.address(), "shop", "")
				said = server.logged
			}
			s.fillTable(*rows)
			id := outbox.NewID()
			tx, err := s.DB.BeginTx(t.Context(), nil)
			check(t, err)
			check(t, s.writer.Write(t.Context(), tx, outbox.Message{ID: id, Topic: "down", Payload: []byte("{}")}))
			check(t, tx.Commit())
			address := fmt.Sprint("127.0.0.1:", testdb.FreePort(t))
			file := filepath.Join(t.TempDir(), "rowrelay.yaml")
			check(t, os.WriteFile(file, fmt.Appendf(nil, twoSinks+"admin: {listen: %q}\n", s.URL, newEndpoint(t).URL, address), 0o600))
			s.start("relay", "run", "--config", file)
			eventually(t, "the page is served", func() bool { return get(address, "/healthz") != nil })
			if *long {
				<-time.After(time.Minute) // the relay has passed the waiting messages over, and the server has finished its work after so many writes
			}
			var parked int64 // the message that the operator opens
			check(t, s.DB.QueryRowContext(t.Context(), "SELECT id FROM outbox_held ORDER BY lane DESC, id DESC LIMIT 1").Scan(&parked))
			read := len(slowStatements(said()))
			s.look(address, file, fmt.Sprint(parked), id, func() []string {
				statements := slowStatements(said())
				defer func() { read = len(statements) }()
				return statements[read:]
			})
		})
	}
}

// fillTable writes messages for a sink that is down. Some are delivered or parked, and the given
// number waits.
func (s *scene) fillTable(waiting int) {
	s.t.Helper()
	exec := func(statement string, arguments ...any) (changed int) {
		s.t.Helper()
		result, err := s.DB.ExecContext(s.t.Context(), statement, arguments...)
		check(s.t, err)
		n, err := result.RowsAffected()
		check(s.t, err)
		return int(n)
	}
	began, all := time.Now(), waiting+waiting*3/10+waiting/30
	exec(`INSERT INTO outbox (topic, message_key, payload_text) WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
		SELECT 'down', ` + map[bool]string{true: "concat('customer-', n)", false: "'customer-' || n"}[s.Kind == testdb.MySQL || s.Kind == testdb.MariaDB] + `, '{"customer":1,"number":1}' FROM numbers`)
	for written := 1000; written < all; {
		written += exec(fmt.Sprint("INSERT INTO outbox (topic, message_key, payload_text) SELECT topic, message_key, payload_text FROM outbox LIMIT ", min(written, all-written, 500_000)))
	}
	move := func(count int, insert string) {
		var last int64
		check(s.t, s.DB.QueryRowContext(s.t.Context(), fmt.Sprint("SELECT id FROM outbox ORDER BY id LIMIT 1 OFFSET ", count-1)).Scan(&last))
		exec(insert + fmt.Sprint(" FROM outbox WHERE id <= ", last))
		exec(fmt.Sprint("DELETE FROM outbox WHERE id <= ", last))
	}
	move(waiting*3/10, "INSERT INTO outbox_done (id, lane, message_id, topic, message_key, payload_text, priority, attempts, crashes, created_at, finished_at, relay) SELECT id, lane, message_id, topic, message_key, payload_text, priority, 1, 0, created_at, created_at, 'relay'")
	move(waiting/30, "INSERT INTO outbox_held (id, lane, state, message_id, topic, message_key, payload_text, priority, attempts, crashes, created_at, last_error) SELECT id, lane, 'error', message_id, topic, message_key, payload_text, priority, 1, 0, created_at, 'refused: HTTP 400'")
	if s.Kind == testdb.Postgres { // autovacuum does this on a table whose rows are written one by one
		exec("VACUUM (ANALYZE)")
	}
	s.t.Logf("%d messages wait, written within %v", waiting, time.Since(began).Round(time.Second))
}

// look makes each of an operator's calls in several rounds. slow returns the new slow statements of the server's log. With -long, the
// test fails if a call took longer than a second in each round, or if a statement was slow in each round. A single slow round may
// be due to other programs on the machine.
func (s *scene) look(address, file, rowID, messageID string, slow func() []string) {
	s.t.Helper()
	absentID, absentTime := "0197a3b4-0000-4abc-8def-0123456789ab", outbox.NewID() // the first id contains no time
	commands := map[string][]string{
		"status":                           {"status"},
		"messages list":                    {"messages", "list", "--limit", "5"},
		"messages list, parked":            {"messages", "list", "--limit", "5", "--state", "error"},
		"messages list, of a key":          {"messages", "list", "--limit", "5", "--key", "customer-7"},
		"messages list, of an absent key":  {"messages", "list", "--limit", "5", "--key", "nobody"},
		"messages list, by the error":      {"messages", "list", "--limit", "5", "--error", "HTTP 400"},
		"messages list, by an absent one":  {"messages", "list", "--limit", "5", "--error", "HTTP 555"},
		"messages list, of the last hours": {"messages", "list", "--limit", "5", "--since", "2h"},
		"messages list, by its id":         {"messages", "list", messageID},
		"messages list, by an absent id":   {"messages", "list", absentID},
		"messages list, by an absent time": {"messages", "list", absentTime},
		"messages show":                    {"messages", "show", rowID},
		"messages show, by its id":         {"messages", "show", messageID},
		"check":                            {"check"},
	}
	pages := map[string]string{
		"page: overview":                "/api/overview",
		"page: charts":                  "/api/history",
		"page: actions":                 "/api/actions",
		"page: replays":                 "/api/replays",
		"page: parked messages":         "/api/messages?state=error",
		"page: pending messages":        "/api/messages?state=pending",
		"page: delivered messages":      "/api/messages?state=done",
		"page: of a topic":              "/api/messages?topic=down",
		"page: of an absent topic":      "/api/messages?topic=nothing",
		"page: of a key":                "/api/messages?key=customer-7",
		"page: by the error":            "/api/messages?error=" + url.QueryEscape("HTTP 400"),
		"page: a message":               "/api/messages/" + rowID,
		"page: by an id of the message": "/api/messages?id=" + messageID,
		"page: by an absent id":         "/api/messages?id=" + absentID,
		"page: by an absent time":       "/api/messages?id=" + absentTime,
		"page: a message by its id":     "/api/messages/" + messageID,
		"metrics":                       "/metrics",
		"GET /status":                   "/status",
	}
	took := map[string][]time.Duration{}
	rounds, slowIn := lasting(2, 5), map[string]int{} // in how many rounds a statement was slow
	for range rounds {
		for what, arguments := range commands {
			began := time.Now()
			out, err := exec.CommandContext(s.t.Context(), binary, append(arguments, "--config", file)...).CombinedOutput()
			if what == "check" { // check fails, because the sink is down
				if !strings.Contains(string(out), "ok    source main: plans: ") {
					s.t.Errorf("check: %v\n%s", err, out)
				}
			} else if err != nil || len(out) == 0 {
				s.t.Errorf("%s: %v\n%s", what, err, out)
			}
			took[what] = append(took[what], time.Since(began))
		}
		for what, path := range pages {
			began := time.Now()
			answer := get(address, path)
			if len(answer) == 0 || strings.HasPrefix(path, "/api") && !json.Valid(answer) {
				s.t.Errorf("%s: %q", what, answer)
			}
			took[what] = append(took[what], time.Since(began))
		}
		if *long {
			<-time.After(5 * time.Second) // by then the cached counts are outdated
		}
		statements := map[string]bool{}
		for _, entry := range slow() {
			s.t.Logf("slow in the database: %s", entry)
			statements[statementOf(entry)] = true
		}
		for statement := range statements {
			slowIn[statement]++
		}
	}
	for statement, n := range slowIn {
		if *long && n == rounds {
			s.t.Errorf("slow in each round: %s", statement)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(took)) {
		s.t.Logf("%s: %v to %v", what, slices.Min(took[what]).Round(time.Millisecond), slices.Max(took[what]).Round(time.Millisecond))
		if *long && slices.Min(took[what]) > time.Second {
			s.t.Errorf("%s took longer than a second in each round", what)
		}
	}
	if parked := string(get(address, "/api/messages?state=error&limit=1")); !strings.Contains(parked, "HTTP 400") {
		s.t.Errorf("the response about the parked messages is %s", parked)
	}
}

// get returns an admin server's response, or nil if its status isn't 200.
func get(address, path string) []byte {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil
	}
	return body
}

// logged returns all log files of the server.
func (s *own) logged() (all string) {
	for _, name := range []string{"output", "log.err", "data/log.err"} {
		text, _ := os.ReadFile(s.path(name)) // each kind of server writes some of these files
		all += string(text)
	}
	return all
}

// slowStatements returns the slow statements in a server's log. It leaves out the relay's searches for missed rows: no operator waits
// for them, and after a slow one the relay searches fewer ids at a time (stride).
func slowStatements(log string) (found []string) {
	for _, entry := range regexp.MustCompile(`(?s)(duration: [0-9.]+ ms.*?|# Query_time: .*?)(?:\n[0-9]{4}-|\n# User@|\z)`).FindAllStringSubmatch(log, -1) {
		if !strings.Contains(entry[1], "length(t.payload_text), 0) FROM") {
			found = append(found, strings.Join(strings.Fields(entry[1]), " "))
		}
	}
	return found
}

// statementOf returns the statement of an entry of a server's log, without its numbers.
func statementOf(entry string) string {
	return regexp.MustCompile(`[0-9]+`).ReplaceAllString(regexp.MustCompile(`^.*?\b(SELECT|WITH|INSERT|UPDATE|DELETE)\b`).ReplaceAllString(entry, "$1"), "N")
}
