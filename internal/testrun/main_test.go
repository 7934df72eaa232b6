package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain also lets the Makefile in TestFailedSuiteLetsOthersRun run this test program as
// bin/testrun.
func TestMain(m *testing.M) {
	if os.Getenv("AS_TESTRUN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// step returns one line of go test -json.
func step(action, folder, name, output string) string {
	line, err := json.Marshal(map[string]string{"Action": action, "Package": folder, "Test": name, "Output": output})
	if err != nil {
		panic(err)
	}
	return string(line)
}

var steps = []string{
	"go: downloading m v1.0.0",
	step("build-output", "", "", "c/c_test.go:3:27: undefined: x\n"),
	step("output", "c", "", "FAIL\tc [build failed]\n"),
	step("fail", "c", "", ""),
	step("run", "a", "TestGood", ""),
	step("output", "a", "TestGood", "=== RUN   TestGood\n"),
	step("output", "a", "TestGood", "    a_test.go:1: said by a test that passes\n"),
	step("run", "b", "TestBad", ""),
	step("output", "b", "TestBad", "=== RUN   TestBad\n"),
	step("run", "b", "TestBad/sub", ""),
	step("output", "b", "TestBad/sub", "    b_test.go:2: why\n"),
	step("output", "b", "TestBad/sub", "--- FAIL: TestBad/sub (0.00s)\n"),
	step("fail", "b", "TestBad/sub", ""),
	step("output", "b", "TestBad", "--- FAIL: TestBad (0.00s)\n"),
	step("fail", "b", "TestBad", ""),
	step("run", "b", "TestLong", ""),
	step("output", "a", "TestGood", "--- PASS: TestGood (0.00s)\n"),
	step("pass", "a", "TestGood", ""),
	step("output", "a", "", "PASS\n"),
	step("output", "a", "", "ok  \ta\t1.000s\n"),
	step("pass", "a", "", ""),
	step("output", "b", "TestLong", "panic: test timed out after 30m0s\n"),
	step("output", "b", "TestLong", "\trunning tests:\n"),
	step("output", "b", "TestLong", "\t\tTestLong (30m0s)\n"),
	step("output", "b", "", "FAIL\tb\t1800.000s\n"),
	step("fail", "b", "", ""),
}

func readSteps(all bool) (r *report, printed string) {
	var out strings.Builder
	r = newReport(&out, "suite", all)
	for _, line := range steps {
		r.read(line)
	}
	return r, out.String()
}

func TestFailuresAndClosingLinesArePrinted(t *testing.T) {
	t.Parallel()
	_, printed := readSteps(false)
	want := strings.Join([]string{
		"go: downloading m v1.0.0", "c/c_test.go:3:27: undefined: x", "FAIL\tc [build failed]",
		"    b_test.go:2: why", "--- FAIL: TestBad/sub (0.00s)", "--- FAIL: TestBad (0.00s)", "ok  \ta\t1.000s",
		"panic: test timed out after 30m0s", "\trunning tests:", "\t\tTestLong (30m0s)", "FAIL\tb\t1800.000s",
	}, "\nsuite: ")
	if printed != "suite: "+want+"\n" {
		t.Errorf("printed\n%s\nwant\n%s", printed, want)
	}
	if _, printed := readSteps(true); !strings.Contains(printed, "said by a test that passes") || !strings.Contains(printed, "=== RUN") {
		t.Errorf("with -v it printed\n%s", printed)
	}
}

func TestResultsAreSaved(t *testing.T) {
	t.Parallel()
	r, _ := readSteps(false)
	folder := t.TempDir()
	if err := r.save(folder, 1); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"ok-suite": "ok  \ta\t1.000s\n",
		"failed-suite": "suite: go test ended with status 1\nFAIL\tc [build failed]\n    b_test.go:2: why\n--- FAIL: TestBad/sub (0.00s)\n--- FAIL: TestBad (0.00s)\n" +
			"panic: test timed out after 30m0s\n\trunning tests:\n\t\tTestLong (30m0s)\nFAIL\tb\t1800.000s\n",
	} {
		if content, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(content) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, content, want)
		}
	}
}

func TestLongOutputIsShortened(t *testing.T) {
	t.Parallel()
	r := newReport(io.Discard, "suite", true)
	r.read(step("output", "a", "TestA", "=== RUN   TestA\n"))
	for i := range 100 {
		r.read(step("output", "a", "TestA", fmt.Sprintf("line %d\n", i)))
	}
	r.read(step("fail", "a", "TestA", ""))
	r.read(step("output", "a", "", "fatal error: all goroutines are asleep\n"))
	r.read(step("output", "a", "", "FAIL\ta\t1.000s\n"))
	r.read(step("fail", "a", "", ""))
	saved := strings.Join(r.failed, "\n")
	if len(r.failed) > 30 || !strings.HasPrefix(saved, "line 0\n") || !strings.Contains(saved, "line 99\nfatal error: all goroutines are asleep\nFAIL\ta") {
		t.Errorf("%d lines are saved:\n%s", len(r.failed), saved)
	}
}

func TestRunningTestsArePrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	r := newReport(&out, "suite", false)
	for _, name := range []string{"TestA", "TestB", "TestC", "TestD", "TestE"} {
		r.read(step("run", "a", name, ""))
		r.running[test{"a", name}] = time.Unix(int64(name[4]), 0)
	}
	r.read(step("pause", "a", "TestA", ""))
	r.read(step("pass", "a", "TestB", ""))
	r.printRunning(time.Unix('F', 0))
	if want := "suite: 1 tests passed, TestC has been running for 3s, TestD has been running for 2s, TestE has been running for 1s\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// goCommand is a fake go command that reports one package for each suite. With ONE_FAILS=yes,
// the suite of stores in relay/sqlstore fails.
const goCommand = `#!/bin/sh
case $1 in
list) printf 'm%s\n' /sinks /cmd/rowrelay /relay /relay/sqlstore /internal/e2e ;;
test)
	shift
	for last; do :; done
	case "$*" in *TestSimulation*) last=$last-histories ;; *"-run ^TestStore"*) last=$last-part ;; esac
	package=${PWD#"$FOLDER"}:$last
	status=pass word=ok
	case $last$ONE_FAILS in */sqlstore-partyes) status=fail word=FAIL ;; esac
	printf '{"Action":"output","Package":"m","Output":"%s\\t%s\\n"}\n{"Action":"%s","Package":"m"}\n' "$word" "$package" $status
	[ $status = pass ]
	;;
esac
`

// TestFailedSuiteLetsOthersRun runs the Makefile's suites with the fake go command.
func TestFailedSuiteLetsOthersRun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, inside := range []string{"bin", "examples", "bench", "deploy/helm", "internal/libraries", "internal/browser"} {
		if err := os.MkdirAll(filepath.Join(folder, inside), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"Makefile": string(makefile), "bin/go": goCommand, "bin/testrun": "#!/bin/sh\nAS_TESTRUN=1 exec " + os.Args[0] + " \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	suites := []string{":m/sinks", ":m/cmd/rowrelay", ":m/relay", ":m/relay-histories", ":m/relay/sqlstore", ":m/relay/sqlstore-part",
		":m/internal/e2e", "/examples:./...", "/bench:./...", "/deploy/helm:./...", "/internal/browser:./...", "/internal/libraries:.", "/internal/libraries:./alerts"}
	run := func(environment ...string) (output string, passed bool) {
		command := exec.Command("make", "on-servers")
		command.Dir = folder
		own := func(variable string) bool {
			return strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "RESULTS=")
		}
		command.Env = append(slices.DeleteFunc(os.Environ(), own), "FOLDER="+folder, "PATH="+filepath.Join(folder, "bin")+":"+os.Getenv("PATH"))
		command.Env = append(command.Env, environment...)
		content, err := command.CombinedOutput()
		return string(content), err == nil
	}
	output, passed := run()
	if !passed {
		t.Errorf("make failed although no suite failed:\n%s", output)
	}
	for _, suite := range suites {
		if want := "ok\t" + suite + "\n"; strings.Count(output, want) != 2 || !strings.Contains(output, "\n"+want) {
			t.Errorf("%s is not printed while it runs and at the end:\n%s", suite, output)
		}
	}
	output, passed = run("ONE_FAILS=yes")
	if passed || !strings.Contains(output, "\nstore-race: go test ended with status 1\nFAIL\t:m/relay/sqlstore-part\n") {
		t.Errorf("make passed, or doesn't name the suite that failed:\n%s", output)
	}
	for _, suite := range suites {
		if suite != ":m/relay/sqlstore-part" && !strings.Contains(output, "\nok\t"+suite+"\n") {
			t.Errorf("%s did not run concurrently with a suite that failed:\n%s", suite, output)
		}
	}
}
