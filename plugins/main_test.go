package plugins_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// TestMain runs a fake plug-in if a test has started this program as a plug-in. The
// first argument is its name.
func TestMain(m *testing.M) {
	if os.Getenv("ROWRELAY_PLUGIN") != "" {
		fakes[os.Args[1]]()
		return
	}
	goleak.VerifyTestMain(m)
}

// fakes are the plug-ins that tests can start, by name.
var fakes = map[string]func(){
	"remote":  func() { plugins.ServeKind(remoteKind()) },
	"file":    func() { plugins.ServeKind(file.Kind()) },
	"discard": func() { plugins.ServeKind(discard.Kind()) },

	"scripted":      func() { plugins.ServeKind(scriptedKind()) },
	"deduplicating": func() { plugins.Serve(deduplicating{}) },
	"spoiling":      func() { plugins.Serve(spoiling{}) },
	"limited":       func() { plugins.Serve(limited{scripted{}}) },

	// Invalid plug-ins.
	"rubbish": func() { fmt.Print(strings.Repeat("\x00rubbish\xff", 1<<18)); linger() },
	"newer":   greet("1|2|unix|/tmp/nowhere|grpc|"),
	"netrpc":  greet("1|1|unix|/tmp/nowhere|netrpc|"),
	"bare":    greet("1|1|unix|/tmp/nowhere|grpc|"),
	"nobody":  greet("1|1|unix|/tmp/nowhere|grpc|" + strings.Repeat("A", 60)),
	"insists": greet("1|1|unix|/tmp/nowhere|grpc|" + plugins.Certificate()),
	"silent":  linger,
	"host":    host,
	"ends": func() {
		fmt.Fprintln(os.Stderr, "there is no licence for s3cret-text")
		os.Exit(3)
	},
}

func greet(line string) func() {
	return func() { fmt.Println(line); linger() }
}

// linger waits to be killed. If a test fails to kill the process, linger ends after ten minutes.
func linger() { time.Sleep(10 * time.Minute) }

// options returns options that start one of the fakes.
func options(t testing.TB, fake string) plugins.Options {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return plugins.Options{
		Path: path, Args: []string{fake}, Directory: directory(t), Logger: logger(t),
		Env: map[string]settings.Secret{"GORACE": "atexit_sleep_ms=0"}, // programs with the race detector otherwise exit late
	}
}

// directory returns a directory with a short path: the path of a socket has at most
// 107 bytes.
func directory(t testing.TB) string {
	t.Helper()
	path, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := os.ReadDir(path)
		if err != nil || len(left) > 0 {
			t.Errorf("a plug-in has left files behind: %v %v", left, err)
		}
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	return path
}
