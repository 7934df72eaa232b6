package outbox

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An application that writes messages gets no dependency by it.
func TestOnlyTheStandardLibraryIsImported(t *testing.T) {
	t.Parallel()
	const outbox = "github.com/rowrelay/rowrelay/outbox"
	const dialect = outbox + "/dialect"
	for folder, allowed := range map[string][]string{".": {dialect}, "dialect": nil, "inbox": {outbox, dialect}} {
		for _, path := range imports(t, folder) {
			external := strings.Contains(strings.Split(path, "/")[0], ".")
			if external && !slices.Contains(allowed, path) {
				t.Errorf("outbox/%s imports %s", folder, path)
			}
			if path == "testing" {
				t.Errorf("outbox/%s imports testing outside of tests", folder)
			}
		}
	}
}

func imports(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files in %s: %v, %v", folder, files, err)
	}
	var paths []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
	}
	return paths
}
