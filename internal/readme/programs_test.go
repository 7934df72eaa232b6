package readme

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// A fragment, which has no package clause, may use these packages, and the
// variables that its function has for parameters.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "os": "os", "sql": "database/sql", "time": "time",
	"dialect": "outbox/dialect", "inbox": "outbox/inbox", "inproc": "sinks/inproc", "outbox": "outbox", "outboxtest": "outbox/outboxtest", "testing": "testing",
	"relay": "relay", "relaypgx": "relay/relaypgx", "rowrelay": "", "sinks": "sinks", "sqlstore": "relay/sqlstore", "storage": "relay/storage", "stdout": "sinks/stdout",
}

const parameters = "ctx context.Context, db *sql.DB, tx *sql.Tx, store *sqlstore.Store, r *relay.Relay, app *rowrelay.App, request *http.Request, t *testing.T"

// source makes a file of a block, whose errors name their place in the page.
func source(b block) string {
	file, line, _ := strings.Cut(b.place, ":")
	position := fmt.Sprintf("//line %s:%s\n", filepath.Base(file), line)
	if strings.HasPrefix(b.text, "package ") {
		return position + b.text
	}
	var imports strings.Builder
	for name, path := range packages {
		if !regexp.MustCompile(`\b` + name + `\.`).MatchString(b.text + parameters) {
			continue
		}
		if first, _, _ := strings.Cut(path, "/"); slices.Contains([]string{"", "outbox", "relay", "sinks"}, first) {
			path = strings.TrimSuffix("github.com/rowrelay/rowrelay/"+path, "/")
		}
		fmt.Fprintf(&imports, "import %q\n", path)
	}
	return "package fragment\n" + imports.String() + "func fragment(" + parameters + ") error {\n" + position + b.text + "return nil\n}\n"
}

// overlay lays the blocks into the module without touching it, and returns
// their packages.
func overlay(t testing.TB, found []block) (flag string, packages []string) {
	t.Helper()
	here, err := filepath.Abs(".")
	check(t, err)
	dir, replace := t.TempDir(), map[string]string{}
	for i, b := range found {
		name := fmt.Sprint("block", i)
		file := filepath.Join(dir, name+".go")
		check(t, os.WriteFile(file, []byte(source(b)), 0o600))
		replace[filepath.Join(here, name, name+".go")] = file
		packages = append(packages, "./"+name)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	check(t, err)
	file := filepath.Join(dir, "overlay.json")
	check(t, os.WriteFile(file, text, 0o600))
	return "-overlay=" + file, packages
}

func TestProgramsCompile(t *testing.T) {
	t.Parallel()
	found := blocks(t, "go")
	if len(found) < 3 {
		t.Errorf("there are only %d Go examples in the pages", len(found))
	}
	flag, packages := overlay(t, found)
	if out, err := exec.Command("go", append([]string{"build", flag}, packages...)...).CombinedOutput(); err != nil {
		t.Errorf("the Go examples: %v\n%s", err, out)
	}
}

// The program with types, too: what it prints is what was handled, and what its observer was told.
func TestTheTypedProgramRuns(t *testing.T) {
	t.Parallel()
	typed := slices.DeleteFunc(blocks(t, "go"), func(b block) bool { return !strings.Contains(b.text, "outbox.Topic[") })
	if len(typed) != 1 {
		t.Fatalf("%d blocks have a topic with a type", len(typed))
	}
	flag, packages := overlay(t, typed)
	binary := filepath.Join(t.TempDir(), "typed")
	if out, err := exec.Command("go", "build", flag, "-o", binary, packages[0]).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	program := exec.Command(binary)
	program.Dir = t.TempDir()
	out, err := program.Output()
	if want := "paid: order-42 1999\nto the bookkeeper: orders.paid refunds are not done here\n"; err != nil || string(out) != want {
		t.Errorf("it printed %q, %v; want %q", out, err, want)
	}
}

// The first program runs as it stands, with a database of its own.
func TestTheFirstProgramRuns(t *testing.T) {
	t.Parallel()
	first := blocks(t, "go")[:1]
	if !strings.Contains(first[0].text, `sql.Open("pgx"`) {
		t.Fatal("the first program isn't for PostgreSQL any more")
	}
	i := slices.IndexFunc(testdb.Targets(), func(target testdb.Target) bool { return target.Name == "postgres15/pgx" })
	db := testdb.Targets()[i].Open(t)
	flag, packages := overlay(t, first)
	binary := filepath.Join(t.TempDir(), "first")
	if out, err := exec.Command("go", "build", flag, "-o", binary, packages[0]).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	program := exec.Command(binary)
	program.Env = append(os.Environ(), "DATABASE_URL="+db.DSN)
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	check(t, err)
	check(t, program.Start())
	late := time.AfterFunc(5*time.Minute, func() { _ = program.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != `orders.paid order-42: {"order": 42}` {
		t.Errorf("it printed %q", lines.Text())
	}
	check(t, program.Process.Signal(os.Interrupt))
	check(t, program.Wait())
}
