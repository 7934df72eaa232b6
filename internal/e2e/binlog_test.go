package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// With a statement-based binary log InnoDB refuses writes of transactions at READ COMMITTED, and a
// relay uses that level. Each command's error names the setting. After the setting has been
// changed, migrate up completes the migration that was refused.
func TestABinaryLogOfStatementsIsNamed(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]string{"mysql": testdb.MySQL, "mariadb1011": testdb.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newOwn(t, name, kind, "--log-bin=binlog", "--binlog-format=STATEMENT", "--server-id=1")
			server.start()
			server.exec("CREATE DATABASE shop")
			run := func(words ...string) (string, error) {
				out, err := exec.CommandContext(t.Context(), binary, append(words, "--database", server.url(server.address(), "shop"))...).CombinedOutput()
				return string(out), err
			}
			refused := func(words ...string) {
				t.Helper()
				if out, err := run(words...); err == nil || !strings.Contains(out, "binlog_format") {
					t.Errorf("rowrelay %s: %v, want one that names binlog_format: %s", strings.Join(words, " "), err, out)
				}
			}
			refused("migrate", "up")
			refused("migrate", "up")
			refused("check")
			server.exec("SET GLOBAL binlog_format = 'MIXED'")
			if out, err := run("migrate", "up"); err != nil {
				t.Fatalf("migrate up: %v: %s", err, out)
			}
			s := setUp(t, testdb.Database{Name: "shop", Kind: kind, Driver: "mysql", URL: server.url(server.address(), "shop"), DB: server.open(server.address(), "shop", "")})
			s.writeOrders(10, 1)
			e := newEndpoint(t)
			check(t, s.drain(e))
			if got := len(e.received()); got != 10 {
				t.Errorf("%d of 10 messages arrived", got)
			}
			server.exec("SET GLOBAL binlog_format = 'STATEMENT'")
			refused("check")
			refused("run", "--drain", "--sink", "stdout:")
		})
	}
}
