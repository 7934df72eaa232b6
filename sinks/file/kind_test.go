package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/file"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func registry(t *testing.T) *sinks.Registry {
	t.Helper()
	r, err := sinks.NewRegistry(file.Kind())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, file.Kind(), map[string]any{"path": "out.jsonl"})
}

func TestURLs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for rawURL, name := range map[string]string{
		"file:" + folder + "/a":                                  "a",
		"file://" + folder + "/b":                                "b",
		"file:" + folder + "/c%20d%23?sync=false":                "c d#",
		"file:" + folder + "/e?mode=0640&sync=true":              "e",
		"file:" + folder + "/../" + filepath.Base(folder) + "/f": "f",
	} {
		sink, err := registry(t).FromURL(rawURL)
		if err != nil {
			t.Errorf("FromURL(%q): %v", rawURL, err)
			continue
		}
		if err := sink.Open(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Errorf("%s: %v", rawURL, err)
		}
		closed(t, sink)
	}
}

func TestRelativeURL(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, rawURL := range []string{"file:plain", "file:with%2520percent"} {
		sink, err := registry(t).FromURL(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		if err := sink.Open(t.Context()); err != nil {
			t.Error(err)
		}
		closed(t, sink)
	}
	for _, name := range []string{"plain", "with%20percent"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

func TestInvalidURLs(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"file:":                  "setting path: must not be empty",
		"file://out.jsonl":       "write file:path or file:///absolute/path",
		"file://host/out.jsonl":  "write file:path or file:///absolute/path",
		"file://u:p@/out.jsonl":  "write file:path or file:///absolute/path",
		"file:out#1":             "a # in the path must be written as %23",
		"file:100%":              "a % in the path must be written as %25",
		"file:out?sync=maybe":    "setting sync: must be true or false",
		"file:out?mode=0400":     "setting mode: must be octal digits such as 0600 or 0640 that let the owner read and write",
		"file:out?mode=rw":       "setting mode: must be octal digits",
		"file:out?mode=04600":    "setting mode: must be octal digits",
		"file:out?fsync=true":    "setting fsync: is not known; this kind has mode, path, sync",
		"file:out?path=in":       "path can't be in the query",
		"file:out?sync=1&sync=0": "the setting sync is given twice",
		"file:out?sync=%zz":      "must be settings like",
	} {
		if _, err := registry(t).FromURL(rawURL); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("FromURL(%q): %v, want %s", rawURL, err, want)
		}
	}
}
