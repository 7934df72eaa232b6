//go:build unix

package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// Behind a pooler in transaction mode without support for prepared statements, such as PgBouncer, the command fails
// with a hint. With the parameter that the hint recommends, a relay delivers all messages.
func TestBehindAPooler(t *testing.T) {
	t.Parallel()
	pooled := poolerOf(t, postgresDatabase(t))
	mustRun(t, "migrate", "up", "--database", pooled+"&default_query_exec_mode=exec")

	call(t.Context(), "", "check", "--database", pooled) // leaves prepared statements in sessions of the server
	got := call(t.Context(), "", "check", "--database", pooled)
	if want := "add default_query_exec_mode=exec to the URL"; got.code != exitFailed || !strings.Contains(got.stdout, want) {
		t.Errorf("check with prepared statements doesn't say %q:\n%s%s", want, got.stdout, got.stderr)
	}
	pooled += "&default_query_exec_mode=exec"
	got = call(t.Context(), "", "check", "--database", pooled)
	for _, want := range []string{"ok    source outbox: plan", "FAIL  source outbox: notifications: ", "a pooler in transaction mode", "listen: off", "rowrelay: 1 of "} {
		if !strings.Contains(got.stdout+got.stderr, want) {
			t.Errorf("check without prepared statements doesn't say %q:\n%s%s", want, got.stdout, got.stderr)
		}
	}
	mustCall(t, `{"topic":"a","payload":"1"}`+"\n"+`{"topic":"a","payload":"2"}`, "enqueue", "--database", pooled)
	if got := mustRun(t, "run", "--database", pooled, "--sink", "stdout:", "--listen", "off", "--drain"); strings.Count(got.stdout, `"topic":"a"`) != 2 {
		t.Errorf("delivered is %s", got.stdout)
	}
}

// postgresDatabase returns an empty database on PostgreSQL.
func postgresDatabase(t *testing.T) testdb.Database {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Name == "postgres15/pgx" {
			return target.Open(t)
		}
	}
	t.Fatal("there is no target postgres15/pgx")
	return testdb.Database{}
}

// poolerOf starts a PgBouncer for a database and returns a URL that connects through the PgBouncer.
func poolerOf(t *testing.T, db testdb.Database) string {
	t.Helper()
	binary := os.Getenv("ROWRELAY_TEST_PGBOUNCER")
	if binary == "" {
		const missing = "ROWRELAY_TEST_PGBOUNCER isn't set: deploy/servers/servers up pgbouncer"
		if os.Getenv("REQUIRE_SERVERS") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	server, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := testdb.FreePort(t)
	address := fmt.Sprint("127.0.0.1:", port)
	folder, err := os.MkdirTemp("", "pgbouncer-") // the folder of t.TempDir can't be read by other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	secret, _ := server.User.Password()
	for name, content := range map[string]string{
		"users": fmt.Sprintf("%q %q\n", server.User.Username(), secret),
		"pgbouncer.ini": fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
auth_type = plain
auth_file = %s
pool_mode = transaction
default_pool_size = 5
unix_socket_dir =
`, server.Hostname(), server.Port(), port, filepath.Join(folder, "users")),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	logged := newLog()
	pooler := exec.CommandContext(t.Context(), binary, filepath.Join(folder, "pgbouncer.ini"))
	pooler.Stderr = logged
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		pooler.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if err := pooler.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pooler.Process.Kill(); _ = pooler.Wait() })
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			said, _ := logged.read()
			t.Fatalf("the pooler doesn't answer: %v\n%s", err, said)
		}
		<-time.After(20 * time.Millisecond)
	}
	server.Host = address
	return server.String()
}
