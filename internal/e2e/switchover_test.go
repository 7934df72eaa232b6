package e2e

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// switchover makes the standby the primary. The old primary returns as a standby. Clients still
// reach the old primary at the pair's address until front is redirected to the new primary. The
// redirection ends no connection.
func (p *pair) switchover(readOnly string) {
	p.t.Helper()
	p.caughtUp()
	fault(p.t, proof.Switchover, "")
	switch kind := p.primary.kind; kind {
	case testdb.Postgres:
		p.primary.signal(syscall.SIGINT)
		p.standby.exec("SELECT pg_promote()")
		p.primary.write("data/standby.signal", "")
		p.primary.start()
	default:
		p.primary.exec("SET GLOBAL " + readOnly + " = 1")
		word := map[string]string{testdb.MySQL: "REPLICA", testdb.MariaDB: "SLAVE"}[kind]
		p.standby.exec("STOP "+word, "RESET "+word+" ALL", "SET GLOBAL read_only = 0")
	}
}

// ordinary returns the URL for a user without an administrator's privileges, because an
// administrator can write on a read-only server.
func (p *pair) ordinary(s *scene) string {
	p.t.Helper()
	if s.Kind == testdb.Postgres {
		return s.URL
	}
	p.primary.exec("CREATE USER app@'%' IDENTIFIED BY 'app'", "GRANT ALL ON "+s.Name+".* TO app@'%'", "GRANT PROCESS ON *.* TO app@'%'")
	address, err := url.Parse(s.URL)
	check(p.t, err)
	address.User = url.UserPassword("app", "app")
	return address.String()
}

// After a switchover relays leave the old primary, which answers reads but refuses writes. The test
// has a relay in a separate process, a relay on an application's own pool, and commands that first
// connect to the old primary.
func TestSwitchover(t *testing.T) {
	t.Parallel()
	for _, way := range drawn(
		struct{ server, target, readOnly string }{"postgres15", "postgres15/pgx", ""},
		struct{ server, target, readOnly string }{"mariadb1011", "mariadb1011/gosql", "read_only"},
		struct{ server, target, readOnly string }{"mysql", "mysql/gosql", "read_only"},
		struct{ server, target, readOnly string }{"mysql", "mysql/gosql", "super_read_only"},
	) {
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			t.Run(fmt.Sprint(way.server, " ", way.readOnly, " ", claim), func(t *testing.T) {
				t.Parallel()
				p := newPair(t, way.server, 0)
				s := p.scene("switched")
				s.URL = p.ordinary(s)
				var log interface{ String() string }
				admin := fmt.Sprint("127.0.0.1:", testdb.FreePort(t))
				e, g := newEndpoint(t), newGate(false)
				if claim == storage.ByLanes {
					log = s.relay("relay", e.URL+"/relay", "--admin", admin).log
				} else { // on a pool as an application opens it
					driver, dsn := p.primary.dsn(p.front.address(), s.Name, "")
					if s.Kind != testdb.Postgres {
						dsn = strings.Replace(dsn, "root:"+p.primary.secret, "app:app", 1)
					}
					pool, err := sql.Open(driver, dsn)
					check(t, err)
					t.Cleanup(func() { _ = pool.Close() })
					log = &s.embed(s.opens(pool), claim, 15*time.Second, g).log
				}
				s.writeOrders(200, 1)
				s.settled()
				shows := func(delivered int) {
					if claim == storage.ByLanes {
						eventually(t, fmt.Sprintf("the admin server shows %d delivered", delivered), func() bool {
							response, err := http.Get("http://" + admin + "/status")
							check(t, err)
							defer response.Body.Close()
							body, err := io.ReadAll(response.Body)
							return err == nil && strings.Contains(string(body), fmt.Sprintf(`"done":%d,`, delivered))
						})
					}
				}
				shows(200)

				p.switchover(way.readOnly)
				eventually(t, "the relay connects to the read-only server", func() bool {
					said := log.String()
					return strings.Contains(said, "read-only") || strings.Contains(said, "during recovery")
				})
				p.front.redirect(p.standby.address())
				s.DB = p.standby.open(p.standby.address(), s.Name, "")
				s.store = s.opens(s.DB)
				s.writeOrders(200, 1000)
				s.settled()
				arrivals := append(e.received(), g.received()...)
				if v := tally(t, arrivals); v.distinct != 400 {
					t.Errorf("%d of 400 messages arrived", v.distinct)
				}

				shows(400)

				for _, command := range []string{"pause topic other", "resume topic other", "migrate up", "enqueue"} {
					p.front.first(p.primary.address())
					words := strings.Fields(command)
					run := exec.CommandContext(t.Context(), binary, append(words, "--database", s.URL)...)
					run.Stdin = strings.NewReader(`{"topic":"orders","key":"1","payload":{"customer":1,"number":5000}}`)
					if out, err := run.CombinedOutput(); err != nil {
						t.Errorf("%s: %v\n%s", command, err, out)
					}
				}
			})
		}
	}
}

// A listener leaves a server that has become read-only. Such a server sends no more notifications,
// but still answers the listener's pings.
func TestAListenerLeavesAReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := newOwn(t, "postgres15", testdb.Postgres)
	server.start()
	server.scene(server.address(), "listened", "")
	listener, err := relaypgx.NewListener(server.url(server.address(), "listened"), relaypgx.ListenerOptions{Ping: 50 * time.Millisecond, Patience: time.Minute})
	check(t, err)
	listening, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- listener.Listen(t.Context(), func() {
			select {
			case listening <- struct{}{}:
			default:
			}
		})
	}()
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	server.exec("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it listens to a read-only server")
	}
}
