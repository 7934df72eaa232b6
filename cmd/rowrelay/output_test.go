package main

import (
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"two\nlines":          "two\nlines",
		"tried:\n\t127.0.0.1": "tried:\n 127.0.0.1",
		"\x1b[2J\a\xff":       "�[2J��",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// deaf is an output whose reader has stopped reading: a Write blocks until the end of the test.
type deaf struct{ asked, over chan struct{} }

func (d deaf) Write(text []byte) (int, error) {
	d.asked <- struct{}{}
	<-d.over
	return 0, io.ErrClosedPipe
}

// A relay can be stopped even while a write to its output blocks.
func TestBlockedOutputDoesNotBlockAStop(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL)
		mustCall(t, `{"topic":"a"}`, "enqueue", "--database", db.URL)
		out := deaf{make(chan struct{}, 1), make(chan struct{})}
		var once sync.Once
		release := func() { once.Do(func() { close(out.over) }) }
		t.Cleanup(release)
		d := startTo(t, out, "run", "--database", db.URL, "--sink", "stdout:", "--drain-timeout", "1ms")
		t.Cleanup(release) // runs before the cleanup that waits for the daemon
		<-out.asked
		if _, logged := d.stop(t); !strings.Contains(logged, "stopped") {
			t.Errorf("the log:\n%s", logged)
		}
	}, "sqlite/modernc")
}
