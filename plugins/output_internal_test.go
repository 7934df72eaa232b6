package plugins

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A plug-in that prints without end does not fill the relay's log.
func TestOutputIsLoggedUpToALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := &output{logger: slog.New(slog.NewTextHandler(&log, nil))}
		logged := func() int { return strings.Count(log.String(), "\n") }

		o.readStderr(strings.NewReader(strings.Repeat("a line\n", 500_000)))
		if logged() != maxLinesLogged {
			t.Errorf("%d of 500,000 lines were logged, want %d", logged(), maxLinesLogged)
		}
		time.Sleep(logWindow)
		o.readStderr(strings.NewReader("one more\n"))
		if want := `msg="plug-in: one more"`; logged() != maxLinesLogged+2 || !strings.Contains(log.String(), want) {
			t.Errorf("%d lines, want %d with %s", logged(), maxLinesLogged+2, want)
		}
		if want := `level=WARN msg="plug-in output was not logged: too many lines" lines=499000`; !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s", want)
		}

		o.readStderr(strings.NewReader(strings.Repeat("a line\n", maxLinesLogged)))
		before := logged()
		o.reportUnlogged()
		o.reportUnlogged()
		if want := "lines=1\n"; logged() != before+1 || !strings.HasSuffix(log.String(), want) {
			t.Errorf("%d lines after %d, want one more with %s", logged(), before, want)
		}
	})
}

// The limit applies to all outputs of the plug-in together.
func TestOutputsShareTheLimit(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := &output{logger: slog.New(slog.NewTextHandler(&log, nil))}
	reader, writer := io.Pipe()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	o.readStdout(strings.NewReader("greeting\n"+strings.Repeat("printed\n", maxLinesLogged-1)), writer)
	_, _ = o.Write([]byte("written\nnot logged\n"))
	if got := strings.Count(log.String(), "\n"); got != maxLinesLogged || strings.Contains(log.String(), "not logged") {
		t.Errorf("%d lines, want %d", got, maxLinesLogged)
	}
}
