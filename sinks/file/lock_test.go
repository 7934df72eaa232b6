//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package file

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func TestSendWaitsForTheLock(t *testing.T) {
	t.Parallel()
	sink, _, path := faultySink(t, Options{}, func(*faulty) {})
	other, err := openFile(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	o := sink.Send(ctx, batch("b"))[0]
	if o.Result != sinks.Unsent || !strings.Contains(o.Detail, "another process") {
		t.Errorf("outcome %+v", o)
	}
	has(t, path, lineA)
	sent := make(chan []sinks.Outcome)
	go func() { sent <- sink.Send(t.Context(), batch("b")) }()
	if err := other.Unlock(); err != nil {
		t.Fatal(err)
	}
	if o := (<-sent)[0]; o.Result != sinks.Delivered {
		t.Errorf("outcome %+v", o)
	}
	has(t, path, lineA+lineB)
}

func TestPipeIsRefusedWithoutBlocking(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	sink, err := New(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Open of a pipe: %v", err)
	}
}

const inChild = "ROWRELAY_TEST_FULL_DISK"

// The suite runs in a process whose files may not grow during an outage, so that
// the system stops writes in the middle of a line, as on a full disk.
func TestConformanceOnAFullDisk(t *testing.T) {
	if os.Getenv(inChild) != "" {
		signal.Ignore(syscall.SIGXFSZ)
		sinktest.Run(t, onFullDisk)
		return
	}
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConformanceOnAFullDisk$", "-test.v")
	child.Env = append(os.Environ(), inChild+"=1")
	output, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS: TestConformanceOnAFullDisk/Outage ") {
		t.Errorf("the suite on a full disk: %v\n%s", err, output)
	}
}

func onFullDisk(t testing.TB) sinktest.Harness {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	sink, err := New(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return sinktest.Harness{
		Sink:     sink,
		Received: func() []outbox.Message { return lines(t, path) },
		Break:    func() { limitFiles(t, sizeOf(path)+7) },
		Repair:   func() { limitFiles(t, 1<<40) },
	}
}

func lines(t testing.TB, path string) []outbox.Message {
	text, _ := os.ReadFile(path)
	var got []outbox.Message
	for line := range strings.Lines(string(text)) {
		m, err := sinks.ReadLine([]byte(line))
		if err != nil {
			t.Errorf("line %d: %v", len(got)+1, err)
		}
		got = append(got, m.Message)
	}
	return got
}

func sizeOf(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}

// limitFiles limits the size of the files of this process.
func limitFiles(t testing.TB, size uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = size
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
}
