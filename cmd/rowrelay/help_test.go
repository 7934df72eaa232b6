package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares the text got with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale (go test -update rewrites it); got\n%s", file, got)
	}
}

func TestHelpTexts(t *testing.T) {
	t.Parallel()
	kinds, err := newKinds(io.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := program{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, kinds: kinds}
	walk(p.rootCommand(), func(path []string) {
		t.Run(strings.Join(path, " "), func(t *testing.T) {
			t.Parallel()
			got := mustRun(t, append(path[1:], "--help")...)
			golden(t, strings.Join(path, "_")+".help.golden", []byte(got.stdout))
		})
	})
}

// walk visits a command and all its sub-commands.
func walk(command *cobra.Command, visit func(path []string)) {
	visit(strings.Fields(command.CommandPath()))
	for _, below := range command.Commands() {
		walk(below, visit)
	}
}

func TestEachHelpFileHasItsCommand(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.help.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		path := strings.Split(strings.TrimSuffix(filepath.Base(file), ".help.golden"), "_")
		if got := mustRun(t, append(path[1:], "--help")...); !strings.Contains(got.stdout, "  "+strings.Join(path, " ")) {
			t.Errorf("%s belongs to no command", file)
		}
	}
}

// result is the result of a call of the command.
type result struct {
	code           int
	stdout, stderr string
}

// call runs the command line in this process.
func call(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	p := program{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, completionTime: patience}
	code := p.run(ctx, args)
	return result{code, stdout.String(), stderr.String()}
}

func mustRun(t *testing.T, args ...string) result {
	t.Helper()
	return mustCall(t, "", args...)
}

func mustCall(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	got := call(t.Context(), stdin, args...)
	if got.code != exitDone {
		t.Fatalf("rowrelay %s: exit code %d\n%s%s", strings.Join(args, " "), got.code, got.stdout, got.stderr)
	}
	return got
}
