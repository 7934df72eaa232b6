package main

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/admin"
)

// waitingForTables counts the sessions of the database that wait for a lock.
var waitingForTables = map[string]string{
	testdb.Postgres: "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
	testdb.MySQL:    "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND state LIKE 'Waiting for table metadata lock%'",
	testdb.MariaDB:  "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND state LIKE 'Waiting for table metadata lock%'",
}

// While the database doesn't answer, sixty requests occupy four of the page's connections and none of the relay's. Requests
// that the queue has no room for are refused immediately, with Retry-After.
func TestPageReadsTakeNoConnectionsOfTheRelay(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		counting := waitingForTables[db.Kind]
		if counting == "" {
			return // SQLite's readers don't wait for locks
		}
		endpoint := newWeb(t, always(http.StatusOK))
		d := start(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--admin", "0")
		address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(d.log.wait(t, `"?serving admin requests"? address=(\S+)`))
		lock, err := db.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Close() }()
		take, release := "LOCK TABLES outbox_actions WRITE", "UNLOCK TABLES"
		if db.Kind == testdb.Postgres {
			take, release = "BEGIN; LOCK TABLE outbox_actions", "ROLLBACK"
		}
		if _, err := lock.ExecContext(t.Context(), take); err != nil {
			t.Fatal(err)
		}
		type answer struct {
			code  int
			again string
		}
		const asked, refused = 60, 44
		answers := make(chan answer, asked)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for range asked {
			go func() {
				got, err := client.Get("http://" + address + "/api/actions")
				if err != nil {
					answers <- answer{}
					return
				}
				_ = got.Body.Close()
				answers <- answer{got.StatusCode, got.Header.Get("Retry-After")}
			}()
		}
		for range refused {
			if got := <-answers; got.code != http.StatusTooManyRequests || got.again == "" {
				t.Fatalf("a request while others hang got %+v, want 429 and Retry-After", got)
			}
		}
		mustCall(t, jsonLines("orders", 1, 1), "enqueue", "--database", db.URL)
		endpoint.next(t, endpoint.arrived)
		var waiting int
		eventually(t, "the server shows its sessions", func() bool { // MySQL can't while another test's statement has an emoji (error 3854)
			return db.DB.QueryRowContext(t.Context(), counting).Scan(&waiting) == nil
		})
		if waiting > admin.MostReads {
			t.Errorf("%d sessions wait for the table, want at most %d", waiting, admin.MostReads)
		}
		if _, err := lock.ExecContext(t.Context(), release); err != nil {
			t.Error(err)
		}
		for range asked - refused {
			<-answers
		}
	})
}

// On servers that don't end a statement when its caller gives up, the page's reads have a time limit on the server.
func TestPageReadsHaveATimeLimitOnMySQL(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db testdb.Database) {
		database, err := config.ParseDatabase(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		opened, _, err := openDatabase(t.Context(), database, pool{limit: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = opened.Close() }()
		var got string
		variable := map[string]string{testdb.MySQL: "@@max_execution_time", testdb.MariaDB: "@@max_statement_time"}[db.Kind]
		if err := opened.QueryRowContext(t.Context(), "SELECT "+variable).Scan(&got); err != nil || got != "300" && got != "0.3" && got != "0.300000" {
			t.Errorf("%s is %s, %v", variable, got, err)
		}
	})
}
