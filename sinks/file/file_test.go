package file_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func newSink(t testing.TB, options file.Options) *file.Sink {
	t.Helper()
	sink, err := file.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

// messages decodes the file's lines.
func messages(t testing.TB, path string) []outbox.Message {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var got []outbox.Message
	for line := range bytes.Lines(text) {
		m, err := sinks.ReadLine(line)
		if err != nil {
			t.Errorf("line %d: %v", len(got)+1, err)
		}
		got = append(got, m.Message)
	}
	return got
}

// The suite removes the folder to cause an outage.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, noSync := range map[string]bool{"sync": false, "no sync": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(t testing.TB) sinktest.Harness {
				folder := filepath.Join(t.TempDir(), "folder")
				if err := os.Mkdir(folder, 0o700); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(folder, "out.jsonl")
				return sinktest.Harness{
					Sink:     newSink(t, file.Options{Path: path, NoSync: noSync}),
					Received: func() []outbox.Message { return messages(t, path) },
					Break:    func() { rename(t, folder, folder+".away") },
					Repair:   func() { rename(t, folder+".away", folder) },
				}
			})
		})
	}
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// send opens the sink and sends messages with these payloads, which must all be
// delivered.
func send(t *testing.T, sink *file.Sink, payloads ...string) {
	t.Helper()
	var batch []sinks.Message
	for _, payload := range payloads {
		batch = append(batch, sinks.Message{Message: outbox.Message{Topic: "t", Payload: []byte(payload)}})
	}
	for _, o := range sink.Send(t.Context(), batch) {
		if o.Result != sinks.Delivered {
			t.Errorf("outcome %+v", o)
		}
	}
}

func line(payload string) string { return fmt.Sprintf(`{"topic":"t","payload":%q}`, payload) + "\n" }

func text(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func closed(t *testing.T, sink sinks.Sink) {
	t.Helper()
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTornLastLineIsEnded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, after string }{
		"torn":  {line("a") + `{"topic":"t","pa`, line("a") + `{"topic":"t","pa` + "\n" + line("b")},
		"whole": {line("a"), line("a") + line("b")},
		"empty": {"", line("b")},
	} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		if err := os.WriteFile(path, []byte(test.before), 0o600); err != nil {
			t.Fatal(err)
		}
		sink := newSink(t, file.Options{Path: path})
		if err := sink.Open(t.Context()); err != nil {
			t.Error(err)
		}
		send(t, sink, "b")
		closed(t, sink)
		if got := text(t, path); got != test.after {
			t.Errorf("%s:\n%swant\n%s", name, got, test.after)
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.jsonl")
	sink := newSink(t, file.Options{Path: path})
	send(t, sink, "a")
	rename(t, path, path+".1") // logrotate with nocreate
	send(t, sink, "b", "c")
	rename(t, path, path+".2") // logrotate with create
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	send(t, sink, "d")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	send(t, sink, "e")
	if err := os.Truncate(path, 0); err != nil { // logrotate with copytruncate
		t.Fatal(err)
	}
	send(t, sink, "f")
	closed(t, sink)
	for suffix, want := range map[string]string{".1": line("a"), ".2": line("b") + line("c"), "": line("f")} {
		if got := text(t, path+suffix); got != want {
			t.Errorf("%s has\n%swant\n%s", path+suffix, got, want)
		}
	}
}

func TestSeveralWritersShareAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.jsonl")
	long := strings.Repeat("x", 100<<10)
	var writers sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() {
			sink := newSink(t, file.Options{Path: path, NoSync: writer%2 == 0})
			for n := range 25 {
				send(t, sink, fmt.Sprint(writer, " ", n), long)
			}
			closed(t, sink)
		})
	}
	writers.Wait()
	next := map[string]int{}
	for _, m := range messages(t, path) {
		var n int
		if writer, number, ok := strings.Cut(string(m.Payload), " "); ok {
			fmt.Sscan(number, &n)
			if n != next[writer] {
				t.Errorf("writer %s: got %d, want %d", writer, n, next[writer])
			}
			next[writer]++
		}
	}
	for writer := range 4 {
		if got := next[fmt.Sprint(writer)]; got != 25 {
			t.Errorf("writer %d: %d of 25 lines", writer, got)
		}
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ mode, want fs.FileMode }{{0, 0o600}, {0o666, 0o666}} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		sink := newSink(t, file.Options{Path: path, Mode: test.mode})
		send(t, sink, "a")
		closed(t, sink)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode(); got != test.want {
			t.Errorf("mode %v resulted in %v, want %v", test.mode, got, test.want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for want, options := range map[string]file.Options{
		"the path is empty":               {},
		"has bits other than permissions": {Path: "p", Mode: fs.ModeSetgid | 0o600},
	} {
		if _, err := file.New(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v): %v, want %s", options, err, want)
		}
	}
}

func TestOnlyRegularFilesAreAccepted(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for path, want := range map[string]string{
		folder:                              "it is not a regular file; for a pipe or a terminal use the stdout sink",
		os.DevNull:                          "it is not a regular file",
		filepath.Join(folder, "no", "file"): "does its folder exist?",
	} {
		sink := newSink(t, file.Options{Path: path})
		if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open of %s: %v, want %s", path, err, want)
		}
		o := sink.Send(t.Context(), make([]sinks.Message, 1))[0]
		if o.Result != sinks.Unavailable || !strings.Contains(o.Detail, want) {
			t.Errorf("Send to %s: %+v", path, o)
		}
		closed(t, sink)
	}
}

func TestCheckCreatesNoFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "lines.jsonl")
	if err := newSink(t, file.Options{Path: path}).Check(t.Context()); err != nil {
		t.Errorf("a file that doesn't exist yet: %v", err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file was created: %v", err)
	}
	const torn = `{"id":`
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newSink(t, file.Options{Path: path}).Check(t.Context()); err != nil {
		t.Errorf("a file that exists: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != torn {
		t.Errorf("the file was changed: %q, %v", text, err)
	}
	for name, path := range map[string]string{"no folder": filepath.Join(folder, "away", "lines.jsonl"), "a folder": folder, "a file as the folder": filepath.Join(path, "lines.jsonl")} {
		if err := newSink(t, file.Options{Path: path}).Check(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
