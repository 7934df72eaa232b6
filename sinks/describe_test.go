package sinks_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
)

func TestDescriptions(t *testing.T) {
	t.Parallel()
	withURL := namedKind("zoo", "zoo", "zoos")
	bare := sinks.Kind{Name: "bare", Summary: "Nothing to set."}
	for file, got := range map[string]string{
		"test.txt": testKind().Describe(),
		"test.md":  testKind().Markdown(),
		"zoo.txt":  withURL.Describe(),
		"bare.txt": bare.Describe(),
		"bare.md":  bare.Markdown(),
	} {
		golden(t, file, got)
	}
}

// golden compares got with a file in testdata. With UPDATE_GOLDEN=1 it writes the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is stale; update it with UPDATE_GOLDEN=1.\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
