package conformance

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

var (
	dsn    = flag.String("dsn", "", "the URL of a server on which the user may create databases (on Oracle, users)")
	report = flag.String("report", "conformance.md", "the file for the report")
	suites = flag.String("suites", "", "the suites to run, separated by commas; all by default")
)

const root = "../.."

// places has, by the scheme of a server's URL, the target as which the tests use the server.
var places = map[string]struct{ target, variable string }{
	"postgres":   {"postgres15/pgx", "ROWRELAY_TEST_POSTGRES15"},
	"postgresql": {"postgres15/pgx", "ROWRELAY_TEST_POSTGRES15"},
	"mysql":      {"mysql/gosql", "ROWRELAY_TEST_MYSQL"},
	"mariadb":    {"mariadb1011/gosql", "ROWRELAY_TEST_MARIADB1011"},
	"sqlserver":  {"sqlserver/mssqldb", "ROWRELAY_TEST_SQLSERVER"},
	"oracle":     {"oracle/go-ora", "ROWRELAY_TEST_ORACLE"},
}

// suite is a part of the tests.
type suite struct {
	name      string
	arguments []string // the arguments of go test
}

var all = []suite{
	{"store", []string{"./relay/sqlstore", "-run", "^TestStore$"}},
	{"writer", []string{"./internal/outboxdb/..."}},
	{"migrations", []string{"./migrations"}},
	{"check", []string{"./relay/sqlstore", "-skip", "^TestStore$"}},
	{"command", []string{"./cmd/rowrelay"}},
	{"e2e", []string{"./internal/e2e"}},
}

// The suites pass on the server of the flag -dsn. The test writes the results into a report, even if something failed.
func TestServer(t *testing.T) {
	if *dsn == "" {
		t.Skip("-dsn is not set: make conformance DSN=… sets it")
	}
	address, err := url.Parse(*dsn)
	if err != nil {
		t.Fatal("DSN is malformed; it is not shown because it may have a password")
	}
	place, known := places[address.Scheme]
	if !known {
		t.Fatalf("DSN has the scheme %q, want one of %s", address.Scheme, strings.Join(slices.Sorted(maps.Keys(places)), ", "))
	}
	chosen := chosen(t)
	t.Setenv(place.variable, *dsn)
	run := server(t, place.target)
	t.Logf("%s through %s", run.Server, run.Driver)
	dropTemplates(t, address.Scheme)
	text := "| database | driver | suite | passed | skipped | failed |\n| --- | --- | --- | --- | --- | --- |\n"
	for _, s := range chosen {
		counted := s.run(t, place.variable)
		text += fmt.Sprintf("| %s | %s | %s, %s | %d | %d | %s |\n", run.Server, run.Driver, s.name, run.Date, counted.passed, counted.skipped, cmp.Or(strings.Join(counted.failed, ", "), "none"))
		t.Logf("%s: %d passed, %d skipped, %d failed", s.name, counted.passed, counted.skipped, len(counted.failed))
		if len(counted.failed) > 0 {
			t.Errorf("%s failed: %s\n%s", s.name, strings.Join(counted.failed, ", "), counted.output)
		}
		if err := os.WriteFile(*report, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the report is in %s", *report)
}

// dropTemplates drops, when the test ends, the databases that package testdb keeps on PostgreSQL for later tests. It keeps those
// that existed before.
func dropTemplates(t *testing.T, scheme string) {
	t.Helper()
	if !strings.HasPrefix(scheme, "postgres") {
		return
	}
	db, err := sql.Open("pgx", *dsn)
	check(t, err)
	before := templates(t, db)
	t.Cleanup(func() {
		for _, name := range templates(t, db) {
			if !slices.Contains(before, name) {
				_, err := db.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
				check(t, err)
			}
		}
		check(t, db.Close())
	})
}

func templates(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), `SELECT datname FROM pg_database WHERE datname LIKE 'rowrelay\_template\_%'`)
	check(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		check(t, rows.Scan(&name))
		names = append(names, name)
	}
	check(t, rows.Err())
	return names
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func chosen(t *testing.T) []suite {
	t.Helper()
	if *suites == "" {
		return all
	}
	var some []suite
	for name := range strings.SplitSeq(*suites, ",") {
		i := slices.IndexFunc(all, func(s suite) bool { return s.name == name })
		if i < 0 {
			t.Fatalf("no suite has the name %q", name)
		}
		some = append(some, all[i])
	}
	return some
}

// server creates and drops a database on the server, and returns the server's version. It fails the test if the server can't be
// reached or the user lacks rights.
func server(t *testing.T, name string) testdb.Run {
	t.Helper()
	for _, target := range testdb.Targets() {
		if target.Name == name {
			var run testdb.Run
			if !t.Run("server", func(t *testing.T) { run = target.Open(t).NewRun(t) }) || run.Server == "" {
				t.Fatal("the server can't be used: see above")
			}
			return run
		}
	}
	t.Fatalf("this build has no target %s", name)
	return testdb.Run{}
}

// count has the results of a suite's tests. Tests with subtests don't count.
type count struct {
	passed, skipped int
	failed          []string
	output          string // the output of failed tests
}

// run runs a suite on the server that the variable names, and on no other server.
func (s suite) run(t *testing.T, variable string) (c count) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json", "-count=1", "-timeout=2h", "-tags=" + tags()}, s.arguments...)...)
	command.Dir = root
	command.Env = slices.DeleteFunc(os.Environ(), func(setting string) bool {
		return strings.HasPrefix(setting, "ROWRELAY_TEST_") && !strings.HasPrefix(setting, variable+"=") || strings.HasPrefix(setting, "REQUIRE_SERVERS=")
	})
	command.Env = append(command.Env, "ROWRELAY_TEST_CONFORMANCE=yes")
	out, err := command.Output()
	events := map[string]string{}
	texts := map[string]*strings.Builder{}
	for line := range bytes.Lines(out) {
		var event struct{ Action, Package, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		name := strings.TrimPrefix(filepath.Base(event.Package)+"."+event.Test, ".")
		switch event.Action {
		case "pass", "fail", "skip":
			events[name] = event.Action
		case "output":
			if texts[name] == nil {
				texts[name] = &strings.Builder{}
			}
			texts[name].WriteString(event.Output)
		}
	}
	c.tally(events, texts)
	if err != nil && len(c.failed) == 0 {
		c.failed = append(c.failed, "go test")
		c.output = err.Error()
	}
	return c
}

func (c *count) tally(events map[string]string, texts map[string]*strings.Builder) {
	names := slices.Sorted(maps.Keys(events))
	for _, name := range names {
		parent := slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") }) || strings.HasSuffix(name, ".")
		switch action := events[name]; {
		case parent && action != "fail":
		case parent && slices.ContainsFunc(names, func(other string) bool {
			return other != name && strings.HasPrefix(other, strings.TrimSuffix(name, ".")) && events[other] == "fail"
		}):
		case action == "pass":
			c.passed++
		case action == "skip":
			c.skipped++
		default:
			c.failed = append(c.failed, name)
			if texts[name] != nil {
				c.output += texts[name].String()
			}
		}
	}
}

// tags returns the build tags that the server's driver needs.
func tags() string {
	if strings.HasPrefix(*dsn, "oracle:") {
		return "oracle"
	}
	return ""
}
