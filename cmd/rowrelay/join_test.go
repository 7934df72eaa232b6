package main

import (
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/admin"
)

// lookAt starts a relay process whose sink is its standard output.
func lookAt(t *testing.T, db testdb.Database, flags ...string) (command *exec.Cmd, out, said *log) {
	t.Helper()
	command = process(t, db.URL, append([]string{"run", "--sink", "stdout:"}, flags...)...)
	out, said = newLog(), newLog()
	command.Stdout, command.Stderr = out, said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command, out, said
}

func ended(t *testing.T, command *exec.Cmd) {
	t.Helper()
	send(t, command, syscall.SIGTERM)
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

// A trial relay takes no messages from a table while another relay delivers them, unless the trial relay has
// --join. When the other relay has stopped, the trial relay takes over.
func TestTrialRelayTakesNoMessages(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		endpoint := newWeb(t, always(http.StatusOK))
		first := process(t, db.URL, "run", "--sink", endpoint.URL)
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		endpoint.next(t, endpoint.arrived) // the relay is alive

		second, out, said := lookAt(t, db, "--admin", "127.0.0.1:0")
		line := said.wait(t, `standing by[^\n]*`)
		for _, want := range []string{"This relay has: sink sink: stdout.", "has: sink sink: " + endpoint.URL, "start it with --join"} {
			if !strings.Contains(line, want) {
				t.Errorf("got %s, want %s", line, want)
			}
		}
		address := strings.TrimPrefix(said.wait(t, `address=\S+`), "address=")
		if got := getPage(t, "http://"+address+"/readyz"); !strings.Contains(got, "ok, and waits: its sinks or routes") {
			t.Errorf("/readyz returns %s", got)
		}
		if got := mustRun(t, "status", "--database", db.URL).stdout; !strings.Contains(got, "  waits  ") {
			t.Errorf("status prints %s", got)
		}
		if got := call(t.Context(), "", "run", "--database", db.URL, "--sink", "stdout:", "--drain"); got.code != exitFailed || !strings.Contains(got.stderr, "nothing was drained: its sinks or routes") {
			t.Errorf("a drain ends with %d, %s", got.code, got.stderr)
		}
		mustCall(t, jsonLines("seen", 200, 200), "enqueue", "--database", db.URL)
		for range 200 {
			endpoint.next(t, endpoint.arrived)
		}

		if text, _ := out.read(); text != "" {
			t.Errorf("the relay that waits delivered %.500s", text)
		}

		// A relay with --join takes messages, and so does each relay with the same configuration.
		third, joinedOut, _ := lookAt(t, db, "--join")
		waitForStatus(t, db, "the one that joined has lanes", func(got admin.Report) bool {
			shared := 0
			for _, relay := range got.Relays {
				if relay.Lanes > 0 {
					shared++
				}
			}
			return shared >= 2
		})
		mustCall(t, jsonLines("shared", 200, 200), "enqueue", "--database", db.URL)
		joinedOut.wait(t, `"shared"`)
		ended(t, third)
		ended(t, first)
		said.wait(t, "relay: active")
		mustCall(t, jsonLines("after", 1, 1), "enqueue", "--database", db.URL)
		out.wait(t, `"after"`)
		ended(t, second)
	})
}

// waitForStatus requests the status until the function wanted returns true for it.
func waitForStatus(t *testing.T, db testdb.Database, what string, wanted func(admin.Report) bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); !wanted(statusOf(t, db)); <-tick.C {
		if time.Now().After(limit) {
			t.Fatalf("not seen in time: %s; the status is %+v", what, statusOf(t, db))
		}
	}
}
