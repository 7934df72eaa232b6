package testdb_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// Tests that end at the same time may call Record concurrently. A recorded run keeps its position in the
// file, and the runs of new targets are added at the end.
func TestRecord(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "internal/testdb/runs.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`[{"Target": "postgres15/pgx", "Passed": 1}, {"Target": "another/driver"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for _, target := range []string{"sqlite/modernc", "postgres18/pq", "postgres15/pgx"} {
		group.Go(func() {
			if err := testdb.Record(root, map[string]testdb.Run{target: {Target: target, Passed: 2}}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := testdb.ParseRuns(text)
	var names []string
	for _, run := range runs {
		names = append(names, run.Target)
		if run.Passed != 2 && run.Target != "another/driver" {
			t.Errorf("%+v; want the last record", run)
		}
	}
	slices.Sort(names[min(2, len(names)):])
	if want := []string{"postgres15/pgx", "another/driver", "postgres18/pq", "sqlite/modernc"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("recorded %v, %v; want %v", names, err, want)
	}
}
