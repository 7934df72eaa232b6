package plugins_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// built builds an example and returns the path of its program.
func built(t testing.TB, example string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), example)
	if out, err := exec.Command("go", "build", "-o", program, "./examples/"+example).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func TestFilesink(t *testing.T) {
	t.Parallel()
	program := built(t, "filesink")
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		folder := filepath.Join(t.TempDir(), "folder")
		check(t, os.Mkdir(folder, 0o700))
		path := filepath.Join(folder, "out.jsonl")
		return sinktest.Harness{
			Sink:     newSink(t, plugins.Options{Path: program, Args: []string{path}, Directory: directory(t), Logger: logger(t)}),
			Received: func() []outbox.Message { return messagesIn(t, path) },
			Break:    func() { check(t, os.Rename(folder, folder+".away")) },
			Repair:   func() { check(t, os.Rename(folder+".away", folder)) },
		}
	})
}

// The script builds the Python example and its requirements in a new virtual
// environment.
func TestPythonsink(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("installs Python packages")
	}
	out, err := exec.Command("examples/pythonsink/build.sh", filepath.Join(t.TempDir(), "venv")).CombinedOutput()
	if err != nil {
		unavailable(t, "python3 with venv and pip: "+err.Error()+"\n"+string(out))
	}
	program := strings.TrimSpace(string(out[bytes.LastIndexByte(bytes.TrimSpace(out), '\n')+1:]))
	sinktest.Run(t, func(t testing.TB) sinktest.Harness {
		folder := filepath.Join(t.TempDir(), "folder")
		check(t, os.Mkdir(folder, 0o700))
		path := filepath.Join(folder, "out.jsonl")
		return sinktest.Harness{
			Sink: newSink(t, plugins.Options{
				Path: program, Config: map[string]string{"path": path}, Directory: directory(t), Logger: logger(t), StartTimeout: time.Minute,
			}),
			Received: func() []outbox.Message { return messagesIn(t, path) },
			Break:    func() { check(t, os.Rename(folder, folder+".away")) },
			Repair:   func() { check(t, os.Rename(folder+".away", folder)) },
		}
	})
}

// unavailable skips a test and names what is missing. In CI it fails the test.
func unavailable(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_SERVERS") != "" {
		t.Fatalf("missing: %s", what)
	}
	t.Skipf("missing: %s", what)
}

func messagesIn(t testing.TB, path string) (got []outbox.Message) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(text) {
		m, err := sinks.ReadLine(line)
		if err != nil {
			t.Errorf("line %d: %v", len(got)+1, err)
		}
		got = append(got, m.Message)
	}
	return got
}
