package plugins_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

// built builds an example and returns its program's path.
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
