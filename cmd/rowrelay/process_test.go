package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built builds the program once for all tests that need a process.
var built = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "rowrelay-test-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, "rowrelay")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return binary, nil
})

func process(t *testing.T, database string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Env = append(os.Environ(), databaseVariable+"="+database)
	return command
}

func TestTheDatabaseFromTheEnvironment(t *testing.T) {
	t.Parallel()
	run := func(database string, args ...string) (string, error) {
		out, err := process(t, database, args...).CombinedOutput()
		return string(out), err
	}
	database := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	if out, err := run(database, "migrate", "up"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := run(database, "status"); err != nil || !strings.Contains(out, "pending") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run("hunter2", "status"); err == nil || !strings.Contains(out, "$"+databaseVariable+": the value isn't a database's URL") || strings.Contains(out, "hunter2") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		for _, count := range []int{1, 2} {
			t.Run(fmt.Sprint(name, " ", count), func(t *testing.T) {
				t.Parallel()
				hold := make(chan struct{})
				endpoint := newWeb(t, func(request) int { <-hold; return http.StatusOK })
				release := sync.OnceFunc(func() { close(hold) })
				t.Cleanup(release)
				database := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
				mustRun(t, "migrate", "up", "--database", database)
				mustCall(t, `{"topic":"a"}`, "enqueue", "--database", database)

				logged := newLog()
				relay := process(t, database, "run", "--sink", endpoint.URL, "--drain-timeout", "1h")
				relay.Stderr = logged
				if err := relay.Start(); err != nil {
					t.Fatal(err)
				}
				endpoint.next(t, endpoint.requests)
				if count == 2 { // both signals arrive at the same moment, so they count as one signal
					send(t, relay, syscall.SIGSTOP)
					send(t, relay, syscall.SIGTERM)
					send(t, relay, syscall.SIGINT)
					send(t, relay, syscall.SIGCONT)
				} else {
					send(t, relay, signal)
				}
				logged.wait(t, "stopping")
				want := "done            1\n"
				if count == 1 {
					release() // lets the endpoint answer; the relay waits for this answer
				} else {
					<-time.After(2 * sameSignal)
					if said, _ := logged.read(); strings.Contains(said, "aborting") {
						t.Error("two simultaneous signals aborted the stop")
					}
					send(t, relay, signal)
					logged.wait(t, "aborting")
					want = "done            0\n"
				}
				if err := relay.Wait(); err != nil {
					t.Error(err)
				}
				if got := mustRun(t, "status", "--database", database); !strings.Contains(got.stdout, want) {
					t.Errorf("got %s, want %s", got.stdout, want)
				}
			})
		}
	}
}

func send(t *testing.T, command *exec.Cmd, signal os.Signal) {
	t.Helper()
	if err := command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// Because the program handles SIGPIPE, a write to a broken network connection also raises that signal. Such a signal
// doesn't stop the relay.
func TestBrokenConnectionDoesNotStopTheRelay(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	database := "sqlite:" + filepath.Join(folder, "a.db")
	out := filepath.Join(folder, "out.jsonl")
	mustRun(t, "migrate", "up", "--database", database)
	relay := process(t, database, "run", "--sink", "file:"+out)
	reader, err := relay.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	mustCall(t, jsonLines("t", 1, 1), "enqueue", "--database", database)
	waitForLines(t, out, 1)
	if err := relay.Process.Signal(syscall.SIGPIPE); err != nil {
		t.Fatal(err)
	}
	mustCall(t, jsonLines("t", 1, 1), "enqueue", "--database", database)
	waitForLines(t, out, 2)
	if err := relay.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := relay.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// The relay stops when its output has lost its reader.
func TestClosedOutputStopsTheRelay(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	mustRun(t, "migrate", "up", "--database", database)
	logged := newLog()
	relay := process(t, database, "run", "--sink", "stdout:")
	relay.Stderr = logged
	reader, err := relay.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	logged.wait(t, "relaying")
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	mustCall(t, jsonLines("t", 1, 1), "enqueue", "--database", database)
	logged.wait(t, "the output has no reader any more")
	if err := relay.Wait(); err == nil {
		t.Error("the relay ended without an error")
	}
}

// A command succeeds even if the reader of its output ends early, as head does.
func TestClosedPipeIsNoError(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	mustRun(t, "migrate", "up", "--database", database)
	mustCall(t, jsonLines("t", 2000, 1), "enqueue", "--database", database)
	list := process(t, database, "messages", "list", "--limit", "2000")
	var said strings.Builder
	list.Stderr = &said
	reader, err := list.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := list.Start(); err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	if err := list.Wait(); err != nil || said.String() != "" {
		t.Errorf("the command ended with %v and stderr %q", err, said.String())
	}
}

// On SIGHUP the relay reads the configuration and its secrets again, and ignores a broken configuration. Even under load
// no message is lost, and each key's order is kept. Without a configuration file SIGHUP has no effect.
func TestSIGHUPReloadsTheConfiguration(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	database := "sqlite:" + in("a.db")
	mustRun(t, "migrate", "up", "--database", database)
	tokens := make(chan string, 100_000)
	endpoint := newWeb(t, always(http.StatusOK))
	endpoint.Config.Handler = http.HandlerFunc(func(out http.ResponseWriter, request *http.Request) {
		tokens <- request.Header.Get("Authorization")
		endpoint.ServeHTTP(out, request)
	})
	configuration := func(path string) string {
		return fmt.Sprintf("sources: {shop: {database: %q, lease: 10m}}\nsinks: {shop: {type: http, url: %q, bearer_token_file: token}}\n", database, endpoint.URL+path)
	}
	write("rowrelay.yaml", configuration("/one"))
	write("token", "first")

	relay, logged := process(t, "", "run", "--config", in("rowrelay.yaml")), newLog()
	relay.Stderr = logged
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	const keys, each, batches = 10, 5, 6
	var written int
	enqueue := func() {
		var lines strings.Builder
		for range each {
			written++
			for key := range keys {
				fmt.Fprintf(&lines, `{"topic":"a","key":"%d","payload":"%d"}`+"\n", key, written)
			}
		}
		mustCall(t, lines.String(), "enqueue", "--database", database)
	}
	last := map[string]int{}
	arrives := func() {
		t.Helper()
		got := endpoint.next(t, endpoint.arrived)
		var number int
		if _, err := fmt.Sscan(strings.Trim(got.body, `"`), &number); err != nil {
			t.Fatalf("%q: %v", got.body, err)
		}
		if number != last[got.key]+1 {
			t.Fatalf("message %[2]d of key %[1]s arrived after message %[3]d", got.key, number, last[got.key])
		}
		last[got.key] = number
	}
	enqueue()
	arrives() // this message is sent with the first token, before any signal
	for batch := range batches - 1 {
		enqueue()
		switch batch {
		case 1:
			write("rowrelay.yaml", "sources: [")
		case 2:
			write("rowrelay.yaml", configuration("/two"))
		default:
			write("token", fmt.Sprint("token-", batch))
		}
		said, _ := logged.read()
		before := strings.Count(said, "configuration")
		send(t, relay, syscall.SIGHUP)
		logged.wait(t, fmt.Sprintf("(?s)(?:configuration.*){%d}", before+1))
	}
	for range keys*each*batches - 1 {
		arrives()
	}
	if got := len(endpoint.arrived); got != 0 {
		t.Errorf("%d messages arrived twice", got)
	}
	mustCall(t, `{"topic":"a"}`, "enqueue", "--database", database)
	endpoint.next(t, endpoint.arrived)
	used := map[string]bool{}
	for len(tokens) > 0 {
		used[<-tokens] = true
	}
	if want := fmt.Sprint("Bearer token-", batches-2); !used["Bearer first"] || !used[want] {
		t.Errorf("the tokens %v were sent, want the first and %q among them", used, want)
	}
	if said, _ := logged.read(); !strings.Contains(said, "the previous one stays in use") {
		t.Errorf("the log has no error about the broken file:\n%s", said)
	}
	send(t, relay, syscall.SIGTERM)
	if err := relay.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSIGHUPWithoutAFile(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	mustRun(t, "migrate", "up", "--database", database)
	endpoint, logged := newWeb(t, always(http.StatusOK)), newLog()
	relay := process(t, database, "run", "--sink", endpoint.URL)
	relay.Stderr = logged
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	logged.wait(t, "relaying")
	send(t, relay, syscall.SIGHUP)
	logged.wait(t, "there is no configuration file")
	mustCall(t, `{"topic":"a"}`, "enqueue", "--database", database)
	endpoint.next(t, endpoint.arrived)
	send(t, relay, syscall.SIGTERM)
	if err := relay.Wait(); err != nil {
		t.Error(err)
	}
}
