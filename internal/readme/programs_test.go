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

// A fragment is a block without a package clause. The test makes it the body of a function. A fragment
// may use these packages, and the function's parameters.
var packages = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "os": "os", "sql": "database/sql", "time": "time",
	"dialect": "outbox/dialect", "inbox": "outbox/inbox", "inproc": "sinks/inproc", "outbox": "outbox", "outboxtest": "outbox/outboxtest", "testing": "testing",
	"relay": "relay", "relaypgx": "relay/relaypgx", "rowrelay": "", "sinks": "sinks", "sqlstore": "relay/sqlstore", "storage": "relay/storage", "stdout": "sinks/stdout",
	"admin": "relay/admin", "kafka": "sinks/kafka", "otel": "go.opentelemetry.io/otel", "promhttp": "github.com/prometheus/client_golang/prometheus/promhttp", "slog": "log/slog", "tracing": "relay/tracing",
	"metrics": "relay/metrics", "prometheus": "github.com/prometheus/client_golang/prometheus",
	"pgx": "github.com/jackc/pgx/v5", "stdlib": "github.com/jackc/pgx/v5/stdlib",
}

const parameters = "ctx context.Context, db *sql.DB, tx *sql.Tx, store *sqlstore.Store, r *relay.Relay, app *rowrelay.App, request *http.Request, t *testing.T"

// source returns a Go file with the block's code. The compiler's errors name the line in the page.
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

// overlay writes an overlay file for the go command that adds the blocks to the module as packages,
// without changing the module's files. It returns the flag for the overlay and the packages.
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
		t.Errorf("the pages have only %d Go examples", len(found))
	}
	flag, packages := overlay(t, found)
	if out, err := exec.Command("go", append([]string{"build", flag}, packages...)...).CombinedOutput(); err != nil {
		t.Errorf("the Go examples: %v\n%s", err, out)
	}
}

// The program with a typed topic prints the handled message, and the failure that its observer received.
func TestTypedProgramRuns(t *testing.T) {
	t.Parallel()
	typed := slices.DeleteFunc(blocks(t, "go"), func(b block) bool { return !strings.Contains(b.text, "outbox.Topic[") })
	if len(typed) != 1 {
		t.Fatalf("%d blocks have a typed topic", len(typed))
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

// The first program runs unchanged, with a new database.
func TestFirstProgramRuns(t *testing.T) {
	t.Parallel()
	first := blocks(t, "go")[0]
	if !strings.Contains(first.text, `sql.Open("pgx"`) {
		t.Fatal("the first program is no longer for PostgreSQL")
	}
	i := slices.IndexFunc(testdb.Targets(), func(target testdb.Target) bool { return target.Name == "postgres15/pgx" })
	db := testdb.Targets()[i].Open(t)
	deliversAnOrder(t, first, "DATABASE_URL="+db.DSN)
}

// The program of docs/getting-started.md needs no server.
func TestGettingStartedProgramRuns(t *testing.T) {
	t.Parallel()
	for _, b := range blocks(t, "go") {
		if strings.HasPrefix(b.place, "docs/getting-started.md:") && strings.HasPrefix(b.text, "package main\n") {
			deliversAnOrder(t, b)
			return
		}
	}
	t.Error("docs/getting-started.md has no program")
}

// deliversAnOrder runs a program in a new folder. When the program has printed a message, it interrupts
// the program.
func deliversAnOrder(t *testing.T, b block, environment ...string) {
	t.Helper()
	flag, packages := overlay(t, []block{b})
	binary := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", flag, "-o", binary, packages[0]).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	program := exec.Command(binary)
	program.Dir = t.TempDir()
	program.Env = append(os.Environ(), environment...)
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
