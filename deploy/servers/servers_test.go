//go:build linux

// Package servers has no code. Its tests run the scripts in this folder with two servers:
// one that starts, and one that isn't available.
package servers

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The scripts run this test program as the server called good.
func TestMain(m *testing.M) {
	if port := os.Getenv("SERVE_ON_PORT"); port != "" {
		serve(port)
		return
	}
	os.Exit(m.Run())
}

func serve(port string) {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	for err == nil {
		_, err = listener.Accept()
	}
}

const good = `
variable=ROWRELAY_TEST_GOOD
get() { :; }
start() {
	SERVE_ON_PORT=$port "$SERVER_PROGRAM" "$dir" </dev/null &>"$dir/log" 8>&- 9>&- &
	echo $! >"$home.pid"
	until answers 127.0.0.1 "$port"; do sleep 0.01; done
}
url() { echo "good://$password@127.0.0.1:$port/"; }
`

const bad = `
variable=ROWRELAY_TEST_BAD
optional=${BAD_IS_OPTIONAL:-}
get() { because "it does not exist"; }
`

// The server named "ready" is a MySQL that becomes ready at the worst moment: after the scripts have
// read its process id file, while they read its log.
const (
	ready = `
variable=ROWRELAY_TEST_READY
source "$here/lib/mysql.sh"
files= program=("$here/mysqld")
get() { :; }
as_user() { :; }
init_data() { :; }
`
	mysqld = `#!/usr/bin/env bash
for word in "$@"; do case $word in
	--port=*) export SERVE_ON_PORT=${word#*=} ;;
	--pid-file=*) pid=${word#*=} ;;
	--log-error=*) log=${word#*=} ;;
esac done
for _ in $(seq 1000); do [[ -e ${log%/*}/asked ]] && break || sleep 0.01; done
echo $$ >"$pid"
echo "mysqld: ready for connections" >"$log"
exec timeout 600 "$SERVER_PROGRAM" "$@" # ends after 600 s if the scripts fail to stop it
`
	grep = `#!/usr/bin/env bash
if [[ $* == *"ready for connections"* ]]; then
	log=${*: -1}
	touch "${log%/*}/asked"
	for _ in $(seq 1000); do [[ -s $log ]] && break || sleep 0.01; done
fi
PATH=${PATH#*:}
exec grep "$@"
`
)

func TestRunStopsMySQLThatBecomesReadyDuringTheCheck(t *testing.T) {
	t.Parallel()
	s := copyScripts(t)
	for name, content := range map[string]string{"ready.sh": ready, "mysqld": mysqld, "bin/grep": grep} {
		s.write(t, name, content)
	}
	output, status := s.run(t, "PATH="+filepath.Join(s.folder, "bin")+":"+os.Getenv("PATH"), "run", "ready", "--", "true")
	if status != 0 || !strings.Contains(output, "ready: up") || !strings.Contains(output, "ready: down") {
		t.Errorf("status %d, output:\n%s", status, output)
	}
}

// scripts is a copy of the scripts with the servers good and bad.
type scripts struct{ folder, state string }

func copyScripts(t *testing.T) scripts {
	t.Helper()
	s := scripts{folder: t.TempDir(), state: t.TempDir()}
	if err := os.CopyFS(filepath.Join(s.folder, "lib"), os.DirFS("lib")); err != nil {
		t.Fatal(err)
	}
	driver, err := os.ReadFile("servers")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"servers": string(driver), "good.sh": good, "bad.sh": bad} {
		s.write(t, name, content)
	}
	t.Cleanup(func() { _ = s.command("down").Run() })
	return s
}

func (s scripts) write(t *testing.T, name, content string) {
	t.Helper()
	file := filepath.Join(s.folder, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
}

// command runs the scripts with bash. It doesn't execute the file, because a file that was just written can't be executed
// while another test's child process still has it open.
func (s scripts) command(arguments ...string) *exec.Cmd {
	command := exec.Command("bash", append([]string{filepath.Join(s.folder, "servers")}, arguments...)...)
	command.Env = append(os.Environ(), "ROWRELAY_SERVERS_STATE="+s.state, "SERVER_PROGRAM="+os.Args[0],
		"DOCKER_HOST=unix:///nonexistent", "REQUIRE_SERVERS=")
	return command
}

// run returns the scripts' output on both streams, and their exit status.
func (s scripts) run(t *testing.T, environment string, arguments ...string) (string, int) {
	t.Helper()
	command := s.command(arguments...)
	command.Env = append(command.Env, strings.Fields(environment)...)
	output, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output), command.ProcessState.ExitCode()
}

func (s scripts) isUp(t *testing.T) bool {
	t.Helper()
	output, _ := s.run(t, "", "status", "good")
	return strings.HasPrefix(output, "good: up")
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		environment string
		arguments   []string
		status      int
		says        []string
	}{
		"keeps the status": {"", []string{"run", "good", "--", "sh", "-c", "echo $ROWRELAY_TEST_GOOD; exit 7"}, 7,
			[]string{"good: up", "good://", "good: down"}},
		"names what is missing":        {"", []string{"run", "--", "true"}, 0, []string{"NOT tested against bad: it does not exist", "good: down"}},
		"a required server is missing": {"REQUIRE_SERVERS=1", []string{"run", "--", "echo", "it ran"}, 1, []string{"bad: not available: it does not exist"}},
		"an optional server is missing": {"REQUIRE_SERVERS=1 BAD_IS_OPTIONAL=yes", []string{"run", "--", "echo", "the command ran"}, 0,
			[]string{"the command ran", "NOT tested against bad: it does not exist", "good: down"}},
		"no such server": {"", []string{"run", "ugly", "--", "echo", "it ran"}, 2, []string{"no server is called ugly"}},
		"no command":     {"", []string{"run", "good"}, 2, []string{"usage"}},
		"a server of one's own": {"ROWRELAY_TEST_BAD=bad://user@" + listen(t) + "/", []string{"run", "bad", "--", "sh", "-c", "echo $ROWRELAY_TEST_BAD"}, 0,
			[]string{"bad: using the server in ROWRELAY_TEST_BAD", "bad://user@127.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := copyScripts(t)
			output, status := s.run(t, test.environment, test.arguments...)
			if status != test.status || strings.Contains(output, "it ran") {
				t.Errorf("status %d, want %d; output:\n%s", status, test.status, output)
			}
			for _, want := range test.says {
				if !strings.Contains(output, want) {
					t.Errorf("output lacks %q:\n%s", want, output)
				}
			}
			if s.isUp(t) {
				t.Error("the server is still up")
			}
		})
	}
}

// listen returns the address of a listener that stays open until the test ends.
func listen(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func TestRunStoppedByASignal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signal  syscall.Signal
		status  int
		command string
	}{
		"interrupted":    {syscall.SIGINT, 130, "sleep 600 & echo started; sleep 600"},
		"terminated":     {syscall.SIGTERM, 143, "sleep 600 & echo started; sleep 600"},
		"ignores SIGINT": {syscall.SIGTERM, 143, "trap '' INT; sleep 600 & echo started; sleep 600"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := copyScripts(t)
			command := s.command("run", "good", "--", "sh", "-c", test.command)
			output, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(output)
			if line, err := reader.ReadString('\n'); line != "started\n" {
				t.Fatalf("the command printed %q, %v", line, err)
			}
			if err := command.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			// The output ends when all processes of the command have ended.
			if _, err := io.Copy(io.Discard, reader); err != nil {
				t.Error(err)
			}
			if _ = command.Wait(); command.ProcessState.ExitCode() != test.status {
				t.Errorf("status %v, want %d", command.ProcessState, test.status)
			}
			if s.isUp(t) {
				t.Error("the server is still up")
			}
		})
	}
}

// Two clones on one machine may start their servers at the same time.
func TestClonesGetDifferentPorts(t *testing.T) {
	t.Parallel()
	const clones, each = 4, 100
	outputs, errs := make([][]byte, clones), make([]error, clones)
	var all sync.WaitGroup
	for i := range clones {
		command := exec.Command("bash", "-c", "source lib/common.sh; for _ in $(seq 100); do free_port; done")
		command.Env = append(os.Environ(), "state="+t.TempDir())
		all.Go(func() { outputs[i], errs[i] = command.Output() })
	}
	all.Wait()
	given := map[string]bool{}
	for i, output := range outputs {
		if errs[i] != nil {
			t.Errorf("clone %d: %v", i, errs[i])
		}
		for port := range strings.FieldsSeq(string(output)) {
			given[port] = true
			_ = os.Remove(filepath.Join("/tmp/rowrelay-ports", port))
		}
	}
	if len(given) != clones*each {
		t.Errorf("%d clones got %d different ports, want %d", clones, len(given), clones*each)
	}
}

func TestUpStaysUp(t *testing.T) {
	t.Parallel()
	s := copyScripts(t)
	if output, status := s.run(t, "", "up", "good"); status != 0 || !s.isUp(t) {
		t.Fatalf("up: status %d, output:\n%s", status, output)
	}
	before := s.environment(t)
	if output, status := s.run(t, "", "up", "good"); status != 0 || output != "" || s.environment(t) != before {
		t.Errorf("a second up: status %d, output %q", status, output)
	}
	if output, status := s.run(t, "", "run", "good", "--", "true"); status != 0 || !s.isUp(t) {
		t.Errorf("run stopped a server that was up before: status %d, output:\n%s", status, output)
	}
	if output, status := s.run(t, "", "down"); status != 0 || s.isUp(t) || s.environment(t) != "" {
		t.Errorf("down: status %d, output:\n%s", status, output)
	}
}

func (s scripts) environment(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.state, "env"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
