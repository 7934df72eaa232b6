package plugins_test

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
)

// logger returns a logger that writes to the test's output.
func logger(t testing.TB) *slog.Logger { return watched(t).logger() }

// log collects log lines.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func watched(t testing.TB) *log {
	l := &log{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(l.String())
		}
	})
	return l
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
