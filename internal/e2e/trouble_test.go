package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// A relay is suspended in the middle of a send, and continues after another relay has taken
// over. The first relay then changes no row, and logs that its settlements were rejected.
func TestStoppedRelayIsFenced(t *testing.T) {
	t.Parallel()
	s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
	first := s.relay("first", e.URL+"/first", "--lease", "2s", "--admin", "127.0.0.1:0")
	eventually(t, "the first relay holds all lanes", func() bool { return s.status().LanesLeased == storage.Lanes })
	reached, release := make(chan struct{}, 100), make(chan struct{})
	e.answering(func(r *http.Request) int {
		if r.URL.Path == "/first" {
			reached <- struct{}{}
			e.mu.Unlock()
			<-release
			e.mu.Lock()
		}
		return http.StatusOK
	})
	for n := range 20 {
		check(t, s.order(t.Context(), n%4, n+1, true))
	}
	<-reached
	fault(t, proof.RelaySuspended, "/first")
	check(t, first.command.Process.Signal(syscall.SIGSTOP))
	close(release) // the endpoint answers while the relay is suspended
	s.relay("second", e.URL+"/second", "--lease", "2s")
	s.settled()
	before := s.states()
	check(t, first.command.Process.Signal(syscall.SIGCONT))
	eventually(t, "the first relay counts its fenced writes", func() bool {
		return strings.Contains(first.log.String(), "settlements rejected")
	})
	if after := s.states(); after != before {
		t.Errorf("the fenced relay changed rows:\n%s\nbecame\n%s", before, after)
	}
	v := judge(t, e.received())
	late := 0 // messages that the first relay sends after the second one, because it was suspended after it had checked its lease
	for _, d := range v.duplicates {
		if d.first.from != "/first" || d.again.from != "/second" {
			late++
		}
	}
	if late > httpsink.DefaultConcurrency {
		t.Errorf("%d messages arrived twice when the first relay continued, more than it had in flight", late)
	}
	if v.distinct != 20 {
		t.Errorf("%d distinct messages arrived, want 20", v.distinct)
	}
}

// states returns the state and the number of attempts of each row.
func (s *scene) states() string {
	s.t.Helper()
	rows, err := s.DB.Query("SELECT id || ' ' || state || ' ' || attempts FROM outbox_messages ORDER BY id")
	check(s.t, err)
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		check(s.t, rows.Scan(&line))
		lines = append(lines, line)
	}
	check(s.t, rows.Err())
	return strings.Join(lines, "\n")
}

// All connections to the database are cut repeatedly.
func TestCutConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	s, e := newScene(t, "postgres18/pgx"), newEndpoint(t)
	for i := range 2 {
		s.relay(fmt.Sprint("relay-", i), fmt.Sprint(e.URL, "/", i), "--lease", "4s")
	}
	eventually(t, "both relays have started, since a relay that is cut off during its start ends", func() bool {
		return s.number("SELECT count(DISTINCT owner) FROM outbox_lanes WHERE owner IS NOT NULL AND owner <> ''") == 2
	})
	length := lasting(8*time.Second, time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	cutter := s.OpenAnother(t)
	written := 0
	for n := 1; ctx.Err() == nil; n++ {
		if s.order(context.Background(), n%20, n, true) == nil {
			written++
		}
		if n%50 == 0 {
			_, err := cutter.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
			check(t, err)
			fault(t, proof.DatabaseCut, "")
			<-time.After(300 * time.Millisecond)
		}
	}
	eventually(t, "all messages are delivered", func() bool {
		status, err := s.store.Status(t.Context())
		return err == nil && isSettled(status)
	})
	v := judge(t, e.received())
	if want := s.committed(); v.distinct != want || want < written {
		t.Errorf("%d distinct messages arrived of %d committed orders (%d known to be)", v.distinct, want, written)
	}
	if parked := s.status().Counts[storage.StateError]; parked > 0 {
		t.Errorf("%d messages were parked", parked)
	}
	t.Logf("%d orders, %d duplicates", v.distinct, len(v.duplicates))
}

// While the database is down, the readiness check fails and reports the reason.
func TestReadinessFailsWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
	p := s.relay("relay", e.URL+"/relay", "--lease", "2s", "--admin", "127.0.0.1:0")
	var address string
	eventually(t, "the relay logs its admin address", func() bool {
		_, rest, found := strings.Cut(p.log.String(), "127.0.0.1:")
		if found {
			address = "http://127.0.0.1:" + strings.TrimRight(strings.FieldsFunc(rest, func(r rune) bool { return r < '0' || r > '9' })[0], "\n")
		}
		return found
	})
	eventually(t, "the relay is ready", func() bool { return fetch(address+"/readyz") == "200" })
	admin, name := s.maintenance(t), ""
	check(t, s.DB.QueryRow("SELECT current_database()").Scan(&name))
	_, err := admin.Exec(fmt.Sprintf("ALTER DATABASE %s WITH ALLOW_CONNECTIONS false", name))
	check(t, err)
	_, err = admin.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
	check(t, err)
	eventually(t, "the relay is not ready", func() bool { return strings.HasPrefix(fetch(address+"/readyz"), "503") })
	if body := fetch(address + "/readyz"); !strings.Contains(body, "database") {
		t.Errorf("readiness doesn't say why: %s", body)
	}
	if health := fetch(address + "/healthz"); health != "200" {
		t.Errorf("health while the database is gone: %s", health)
	}
}

// maintenance opens a pool of the server's maintenance database.
func (s *scene) maintenance(t testing.TB) *sql.DB {
	t.Helper()
	address, err := url.Parse(s.DSN)
	check(t, err)
	address.Path = "/postgres"
	db, err := sql.Open(s.Driver, address.String())
	check(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// fetch returns the status, and the body unless the status is 200.
func fetch(address string) string {
	response, err := http.Get(address)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return "200"
	}
	body, _ := io.ReadAll(response.Body)
	return fmt.Sprint(response.StatusCode, " ", string(body))
}
