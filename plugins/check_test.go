package plugins_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rowrelay/rowrelay/plugins"
)

// If a plug-in's sink implements sinks.Checker, Check creates nothing. Otherwise Check opens the sink.
func TestCheckOfAPluginCreatesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	file, discard, missing := options(t, "file"), options(t, "discard"), options(t, "file")
	file.Config, missing.Config = map[string]string{"path": path}, map[string]string{"path": "/nowhere/at/all"}
	try := func(o plugins.Options, works bool, call func(*plugins.Sink) error) {
		t.Helper()
		sink := newSink(t, o)
		if err := call(sink); (err == nil) != works {
			t.Errorf("%v, want an error: %v", err, !works)
		}
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	check := func(sink *plugins.Sink) error { return sink.Check(t.Context()) }
	try(file, true, check)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("Check has made the file: %v", err)
	}
	try(file, true, func(sink *plugins.Sink) error { return sink.Open(t.Context()) })
	if _, err := os.Stat(path); err != nil {
		t.Errorf("Open has not made the file: %v", err)
	}
	try(discard, true, check)
	try(missing, false, check)
}
