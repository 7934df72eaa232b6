package sqlstore_test

import (
	"flag"
	"os"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

var update = flag.Bool("update", false, "record how many checks passed, for the table in README.md")

const root = "../.."

// suite counts the checks of storetest that pass on each target, and compares or updates the record
// internal/testdb/runs.json.
type suite struct {
	mu    sync.Mutex
	fresh map[string]testdb.Run
}

// newSuite returns a suite that updates the record, with -update, when the test and its subtests have ended.
func newSuite(t *testing.T) *suite {
	s := &suite{fresh: map[string]testdb.Run{}}
	t.Cleanup(func() {
		if *update && len(s.fresh) > 0 {
			if err := testdb.Record(root, s.fresh); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// on returns a harness that counts the checks that pass on a target. If some checks were skipped or failed,
// the record is neither compared nor updated.
func (s *suite) on(t *testing.T, target testdb.Target, harness storetest.Harness) storetest.Harness {
	var mu sync.Mutex
	passed := 0
	harness.Within = func(t *testing.T, check func(testing.TB)) {
		check(t)
		mu.Lock()
		defer mu.Unlock()
		if !t.Failed() {
			passed++
		}
	}
	var run testdb.Run
	if *update {
		run = target.Open(t).NewRun(t)
	}
	t.Cleanup(func() {
		if passed == len(harness.Checks()) {
			run.Passed, run.Of = passed, len(storetest.Harness{}.Checks())
			s.passed(t, target, run)
		}
	})
	return harness
}

func (s *suite) passed(t *testing.T, target testdb.Target, run testdb.Run) {
	if *update {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fresh[target.Name] = run
		return
	}
	if os.Getenv("ROWRELAY_TEST_CONFORMANCE") != "" { // the server isn't the recorded one
		return
	}
	runs, err := testdb.Runs()
	if err != nil {
		t.Fatal(err)
	}
	for _, was := range runs {
		if was.Target == target.Name && was.Passed == run.Passed && was.Of == run.Of {
			return
		}
	}
	t.Errorf("%s passed %d checks of %d, but the record differs: run go test ./relay/sqlstore -run TestStore -update, and then go test ./internal/readme -update",
		target.Name, run.Passed, run.Of)
}
