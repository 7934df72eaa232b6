package e2e

import (
	"database/sql"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

// newGroup returns three nodes of MySQL Group Replication. The cluster's address leads to the primary, or if there are
// several, to one of them.
func newGroup(t *testing.T, several bool) *cluster {
	c := &cluster{t: t, topology: "MySQL Group Replication, three nodes, one primary"}
	if several {
		c.topology = "MySQL Group Replication, three primaries"
	}
	ports, members, name := [3]int{testdb.FreePort(t), testdb.FreePort(t), testdb.FreePort(t)}, []string{}, outbox.NewID()
	for _, port := range ports {
		members = append(members, fmt.Sprint("127.0.0.1:", port))
	}
	first := newOwn(t, "mysql", testdb.MySQL, "--skip-log-bin")
	first.start() // alone and without a binary log, to create its user
	first.signal(syscall.SIGTERM)
	first.write("users.sql", "")
	options := func(n int) []string { // super_read_only, so that clients write nothing on a node that has not joined the group yet
		switches := map[bool]string{true: "ON", false: "OFF"}
		return append(binlog(testdb.MySQL), "--innodb-buffer-pool-size=128M", "--server-id="+strconv.Itoa(n+1), "--report-host=127.0.0.1", "--super-read-only=ON",
			"--plugin-dir="+first.plugins(), "--plugin-load-add=group_replication.so",
			"--group-replication-group-name="+name, "--group-replication-start-on-boot=OFF", "--group-replication-local-address="+members[n],
			"--group-replication-group-seeds="+strings.Join(members, ","), "--group-replication-ip-allowlist=127.0.0.1/8", "--group-replication-recovery-get-public-key=ON",
			"--group-replication-member-expel-timeout=0", "--group-replication-single-primary-mode="+switches[!several],
			"--group-replication-enforce-update-everywhere-checks="+switches[several])
	}
	first.options = options(0)
	c.nodes = []*own{first, first.copied(options(1)...), first.copied(options(2)...)}
	for i, node := range c.nodes {
		node.write("users.sql", "")
		node.start()
		node.exec("CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root', SOURCE_PASSWORD = '" + node.secret + "' FOR CHANNEL 'group_replication_recovery'")
		if i == 0 {
			node.exec("SET GLOBAL group_replication_bootstrap_group = ON", "START GROUP_REPLICATION", "SET GLOBAL group_replication_bootstrap_group = OFF")
		}
		joinGroup(node, i > 0)
	}
	c.behindProxy(func(dead int) (elected int) {
		eventually(t, "the group has expelled the dead node, and another node is primary", func() bool {
			for i, node := range c.nodes {
				if i != dead && groupRole(node) == "PRIMARY" && groupSize(node) == len(c.nodes)-1 {
					elected = i
					return true
				}
			}
			return false
		})
		return elected
	}, func(node *own) {
		node.start()
		joinGroup(node, true)
	})
	return c
}

// plugins returns the folder of MySQL's plugins.
func (s *own) plugins() string {
	program := s.words[len(s.words)-1]
	return strings.TrimSuffix(program, "sbin/mysqld") + "lib/mysql/plugin"
}

// joinGroup makes a node join the group, unless it has already done so, and waits until the node has all data.
func joinGroup(node *own, start bool) {
	node.t.Helper()
	if start {
		db := node.open(node.address(), "", "")
		defer db.Close()
		if _, err := db.ExecContext(node.t.Context(), "START GROUP_REPLICATION"); err != nil {
			node.t.Fatalf("START GROUP_REPLICATION: %v\n%s", err, node.said())
		}
	}
	eventually(node.t, "the node is a member of the group", func() bool {
		if !isOpen(node.exited) {
			node.t.Fatalf("the node has ended:\n%s", node.said())
		}
		return groupRole(node) != ""
	})
}

// groupRole returns PRIMARY or SECONDARY, or "" if the node isn't online in the group, or is a primary that doesn't accept writes yet.
func groupRole(node *own) (role string) {
	db, err := sql.Open(node.dsn(node.address(), "", ""))
	check(node.t, err)
	defer db.Close()
	err = db.QueryRow(`SELECT member_role FROM performance_schema.replication_group_members
		WHERE member_id = @@server_uuid AND member_state = 'ONLINE' AND (member_role = 'SECONDARY' OR @@super_read_only = 0)`).Scan(&role)
	if err != nil {
		return "" // the node may be down
	}
	return role
}

// groupSize returns the number of the group's members as a node sees it, or 0 if the node may be down.
func groupSize(node *own) (n int) {
	db := node.open(node.address(), "", "")
	defer db.Close()
	_ = db.QueryRow("SELECT count(*) FROM performance_schema.replication_group_members").Scan(&n)
	return n
}

// The primary and relays are killed. No message may be lost or out of order. With several primaries, the scene only counts the messages
// that arrived out of order, and rowrelay check must warn of them.
func TestGroupReplication(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	t.Run("one primary", func(t *testing.T) {
		c := newGroup(t, false)
		s := c.scene("replicated")
		if out := checked(t, s); strings.Contains(out, "overtake") {
			t.Errorf("rowrelay check warns about the order, although only one server writes:\n%s", out)
		}
		e := c.endure(s, use{}, 4*time.Second, *lastsFor)
		judgeCluster(c, s, e.received(), true)
	})
	t.Run("three primaries", func(t *testing.T) {
		c := newGroup(t, true)
		s := c.scene("replicated")
		if out := checked(t, s); !strings.Contains(out, "replication group with several primaries") {
			t.Errorf("rowrelay check doesn't warn about the order:\n%s", out)
		}
		e := c.endure(s, use{writersOnAll: true, relaysOnAll: true}, 8*time.Second, *lastsFor, "--longest-transaction", "5s")
		tally(t, e.received())
		f := c.counts(s, e.received())
		t.Logf("%s: %+v", c.topology, f)
		if f.lost > 0 || f.parked > 0 || f.undone > 0 {
			t.Errorf("%d messages that the cluster has never arrived, %d are parked; it has lost %d committed ones", f.lost, f.parked, f.undone)
		}
	})
}

// checked returns what rowrelay check says about the scene's database.
func checked(t *testing.T, s *scene) string {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), binary, "check", "--database", s.URL).CombinedOutput() // fails if it warns
	t.Logf("%s", out)
	return string(out)
}
