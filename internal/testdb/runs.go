package testdb

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Run is the recorded result of the stores' conformance suite on a target. To record it again, run
// go test ./relay/sqlstore -run TestStore -update. The table in docs/databases.md is generated
// from the recorded runs.
type Run struct {
	Target string
	Server string // the product and version, such as "PostgreSQL 15.14"
	Driver string // the module and version
	Passed int    // the number of checks that passed
	Of     int    // the number of all checks, including the ones that can't run on this server
	Date   string
}

//go:embed runs.json
var recorded []byte

// Runs returns the recorded runs, in the order in which they were first recorded.
func Runs() ([]Run, error) { return ParseRuns(recorded) }

// ParseRuns parses the content of runs.json.
func ParseRuns(text []byte) (runs []Run, err error) {
	if err := json.Unmarshal(text, &runs); err != nil {
		return nil, fmt.Errorf("read runs.json: %w", err)
	}
	return runs, nil
}

// recording serialises reads and writes of runs.json.
var recording sync.Mutex

// Record writes the runs in fresh to runs.json. A run replaces the recorded run of its target, and the runs of new
// targets are appended. root is the path of the module's folder.
func Record(root string, fresh map[string]Run) error {
	recording.Lock()
	defer recording.Unlock()
	file := root + "/internal/testdb/runs.json"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	runs, err := ParseRuns(text)
	if err != nil {
		return err
	}
	for i, run := range runs {
		if again, ok := fresh[run.Target]; ok {
			runs[i] = again
			delete(fresh, run.Target)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(fresh)) {
		runs = append(runs, fresh[target])
	}
	if text, err = json.MarshalIndent(runs, "", "\t"); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

var numbers = regexp.MustCompile(`^\d+(\.\d+)*((beta|rc)\d+)?`)

// NewRun returns a run on this database with today's date, and without the numbers of checks.
func (db Database) NewRun(t testing.TB) Run {
	t.Helper()
	var version string
	if err := db.DB.QueryRowContext(t.Context(), db.target.version).Scan(&version); err != nil {
		t.Fatalf("ask %s for its version: %v", db.Name, err)
	}
	return Run{
		Target: db.Name, Server: db.target.product + " " + numbers.FindString(strings.TrimPrefix(version, "5.5.5-")), Driver: withVersion(t, db.target.module),
		Date: time.Now().UTC().Format(time.DateOnly),
	}
}

// withVersion returns a module's name, followed by the version with which the tests are built.
func withVersion(t testing.TB, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}", module).Output()
	if err != nil {
		t.Fatalf("ask go list for the version of %s: %v", module, err)
	}
	return module + " " + strings.TrimSpace(string(out))
}
