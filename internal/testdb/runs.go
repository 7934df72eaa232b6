package testdb

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
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
	Of     int    // the number of all checks; those that didn't pass can't run on such a server
	Date   string
}

//go:embed runs.json
var recorded []byte

// Runs returns the recorded runs, in the order of [Targets], followed by runs of other targets.
func Runs() ([]Run, error) { return ParseRuns(recorded) }

// ParseRuns parses a record.
func ParseRuns(text []byte) (runs []Run, err error) {
	if err := json.Unmarshal(text, &runs); err != nil {
		return nil, fmt.Errorf("read runs.json: %w", err)
	}
	return runs, nil
}

// recording serialises reads and writes of the record.
var recording sync.Mutex

// Record stores the fresh runs in place of the recorded runs of the same targets. root is the path
// of the module's folder.
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
	for _, run := range runs {
		if _, again := fresh[run.Target]; !again {
			fresh[run.Target] = run
		}
	}
	if text, err = json.MarshalIndent(inOrder(fresh), "", "\t"); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

func inOrder(runs map[string]Run) []Run {
	place := map[string]int{}
	for i, target := range Targets() {
		place[target.Name] = i - 1000 // these come before targets that only other builds have
	}
	return slices.SortedFunc(maps.Values(runs), func(a, b Run) int {
		return cmp.Or(cmp.Compare(place[a.Target], place[b.Target]), cmp.Compare(a.Target, b.Target))
	})
}

var numbers = regexp.MustCompile(`^\d+(\.\d+)*`)

// NewRun returns a run on this database with today's date, and without the numbers of checks.
func (db Database) NewRun(t testing.TB, root string) Run {
	t.Helper()
	var version string
	if err := db.DB.QueryRowContext(t.Context(), db.target.version).Scan(&version); err != nil {
		t.Fatalf("ask %s for its version: %v", db.Name, err)
	}
	return Run{
		Target: db.Name, Server: db.target.product + " " + numbers.FindString(strings.TrimPrefix(version, "5.5.5-")), Driver: withVersion(t, root, db.target.module),
		Date: time.Now().UTC().Format(time.DateOnly),
	}
}

// withVersion adds the version in go.mod to a module's name.
func withVersion(t testing.TB, root, module string) string {
	t.Helper()
	text, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(strings.TrimPrefix(line, "require ")); len(words) > 1 && words[0] == module {
			return module + " " + words[1]
		}
	}
	t.Fatalf("go.mod has no version of %q", module)
	return ""
}
