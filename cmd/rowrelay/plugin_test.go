package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// builtPlugin returns the path of the example plug-in filesink. It is built once for all tests.
var builtPlugin = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "rowrelay-test-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(folder, "filesink")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../../plugins/examples/filesink").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

func pluginProgram(t *testing.T) string {
	t.Helper()
	program, err := builtPlugin()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func TestPluginCommands(t *testing.T) {
	t.Parallel()
	program, out := pluginProgram(t), filepath.Join(t.TempDir(), "out.jsonl")
	var listed []listedPlugin
	text := mustRun(t, "plugin", "list", "--json", program).stdout
	if err := json.Unmarshal([]byte(text), &listed); err != nil || len(listed) != 1 || len(listed[0].SHA256) != 64 || listed[0].Checksum != "not configured" {
		t.Fatalf("listed %s (%v)", text, err)
	}
	withSum := "plugin:" + program + "?arg=" + out + "&sha256="
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"list", withSum + listed[0].SHA256}, exitDone, "as configured"},
		{[]string{"list", withSum + strings.Repeat("0", 64)}, exitDone, "DIFFERENT from the configuration"},
		{[]string{"list", "./nowhere"}, exitDone, "can't be read"},
		{[]string{"describe", program}, exitFailed, "it exited immediately (exit status 1)"},
		{[]string{"describe", "plugin:" + program + "?arg=f"}, exitDone, "sink (devel): A sink without settings.\nprogram: " + program + ", plug-in protocol 1"},
		{[]string{"describe", "--json", "plugin:" + program + "?arg=f"}, exitDone, `"protocol": 1`},
		{[]string{"describe", "/bin/true"}, exitFailed, "it exited immediately (exit status 0)"},
		{[]string{"check", withSum + listed[0].SHA256}, exitDone, "ok    plug-in " + program + ": open: can be opened"},
		{[]string{"check", withSum + strings.Repeat("0", 64)}, exitFailed, "not the configured 000"},
		{[]string{"check", "plugin:" + program + "?arg=/no/such/folder/file"}, exitFailed, "no such file or directory"},
		{[]string{"check", "--json", "./nowhere"}, exitFailed, "./nowhere can't be run"},
		{[]string{"check"}, exitUsage, "name plug-ins"},
		{[]string{"describe", "plugin:" + program + "?secrets.token=hunter2&nonsense=1"}, exitUsage, program + ": sink kind plugin, setting nonsense: is not known"},
	} {
		got := call(t.Context(), "", append([]string{"plugin"}, test.args...)...)
		if both := got.stdout + got.stderr; got.code != test.code || !strings.Contains(both, test.want) || strings.Contains(both, "hunter2") {
			t.Errorf("plugin %v: code %d, want %d with %q:\n%s", test.args, got.code, test.code, test.want, both)
		}
	}
}

// Without arguments, list finds the programs in PATH that a sink would run, and starts them.
func TestPluginListFindsProgramsInPath(t *testing.T) {
	program, first, second := pluginProgram(t), t.TempDir(), t.TempDir()
	write := func(folder, name, script string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(first, "rowrelay-plugin-lines", "exec "+program+" "+filepath.Join(first, "out.jsonl"), 0o700)
	write(first, "rowrelay-plugin-notes", "not executable", 0o600)
	write(second, "rowrelay-plugin-lines", "exit 1", 0o700)
	write(second, "rowrelay-plugin-broken", "exit 7", 0o700)
	write(second, "rowrelay", "exit 1", 0o700)
	t.Setenv("PATH", strings.Join([]string{"/no/such/folder", first, second}, string(os.PathListSeparator)))
	var listed []listedPlugin
	text := mustRun(t, "plugin", "list", "--json").stdout
	if err := json.Unmarshal([]byte(text), &listed); err != nil || len(listed) != 2 {
		t.Fatalf("listed %s (%v)", text, err)
	}
	if l := listed[0]; l.Program != filepath.Join(second, "rowrelay-plugin-broken") || l.Kind != "" || !strings.Contains(l.Problem, "exit status 7") {
		t.Errorf("listed %+v", l)
	}
	if l := listed[1]; l.Program != filepath.Join(first, "rowrelay-plugin-lines") || l.Kind != "sink" || l.Version != "(devel)" || len(l.SHA256) != 64 {
		t.Errorf("listed %+v", l)
	}
	if text := mustRun(t, "plugin", "list").stdout; !strings.Contains(text, "doesn't start: ") || !strings.Contains(text, "(devel)") {
		t.Errorf("listed %s", text)
	}
	t.Setenv("PATH", "/no/such/folder")
	if text := mustRun(t, "plugin", "list", "--json").stdout; text != "[]\n" {
		t.Errorf("listed %q", text)
	}
}

// If a plug-in can't be started, the messages of its sink wait, and the messages of other sinks
// are delivered.
func TestBrokenPluginDoesNotStopOtherSinks(t *testing.T) {
	t.Parallel()
	program, folder := pluginProgram(t), t.TempDir()
	good := filepath.Join(folder, "good.jsonl")
	database := "sqlite:" + filepath.Join(folder, "a.db")
	path := filepath.Join(folder, "rowrelay.yaml")
	configuration := fmt.Sprintf(`
sources: {shop: {database: %q}}
sinks:
  good: {type: plugin, path: %q, args: [%q]}
  bad: {type: plugin, path: %q, sha256: %q}
routes:
  - {topic: good, sink: good}
  - {topic: bad, sink: bad}
`, database, program, good, program, strings.Repeat("0", 64))
	if err := os.WriteFile(path, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "migrate", "up", "--database", database)
	mustCall(t, jsonLines("good", 100, 7)+jsonLines("bad", 10, 1), "enqueue", "--database", database)
	if got := call(t.Context(), "", "plugin", "check", "--config", path); got.code != exitFailed || !strings.Contains(got.stdout, "ok    plug-in good: open") ||
		!strings.Contains(got.stdout, "FAIL  plug-in bad: start") {
		t.Errorf("check: %+v", got)
	}
	relay := start(t, "run", "--config", path)
	relay.log.wait(t, "sink=bad reason=config.*not the configured 000")
	relay.log.wait(t, `msg="plug-in started" plugin=filesink`)
	waitForLines(t, good, 100)
	if code, text := relay.stop(t); code != exitDone {
		t.Errorf("code %d:\n%s", code, text)
	}
	status := mustRun(t, "status", "--json", "--database", database).stdout
	if !strings.Contains(status, `"done": 100`) || !strings.Contains(status, `"pending": 10`) {
		t.Errorf("status %s", status)
	}
}

func waitForLines(t *testing.T, path string, n int) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		text, err := os.ReadFile(path)
		if lines := strings.Count(string(text), "\n"); lines >= n {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%d lines of %d arrived (%v)", lines, n, err)
		}
	}
}
