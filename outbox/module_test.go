package outbox_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// onlyWrites is a program that imports every package that a service needs to write, to receive, and to test both.
const onlyWrites = `package main

import (
	_ "github.com/rowrelay/rowrelay/outbox"
	_ "github.com/rowrelay/rowrelay/outbox/dialect"
	_ "github.com/rowrelay/rowrelay/outbox/inbox"
	_ "github.com/rowrelay/rowrelay/outbox/outboxtest"
)

func main() {}
`

// A program that imports only outbox's packages requires a single module, and needs no lines in go.sum.
func TestAProgramThatOnlyWritesRequiresOneModule(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": onlyWrites,
		"go.mod":  "module shop\n\ngo 1.26.0\n\nreplace github.com/rowrelay/rowrelay/outbox => " + here + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		t.Helper()
		command := exec.Command("go", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("mod", "tidy")
	run("build", "-o", os.DevNull, ".")
	if modules := strings.Fields(run("list", "-m", "-f", "{{.Path}}", "all")); len(modules) != 2 {
		t.Errorf("the program's modules are %q, want its own and outbox", modules)
	}
	if sums, err := os.ReadFile(filepath.Join(dir, "go.sum")); !errors.Is(err, fs.ErrNotExist) && len(sums) > 0 {
		t.Errorf("the program's go.sum has %s, want no lines", sums)
	}
}
