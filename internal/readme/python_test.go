package readme

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Python code in the pages is copied from files of the example, which has its own tests.
func TestPythonIsFromTheExample(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "examples/django/*/*.py"))
	check(t, err)
	more, err := filepath.Glob(filepath.Join(root, "examples/django/*/migrations/*.py"))
	check(t, err)
	var sources []string
	for _, file := range append(files, more...) {
		name, err := filepath.Rel(root, file)
		check(t, err)
		sources = append(sources, read(t, name).text)
	}
	found := blocks(t, "python")
	if len(found) == 0 {
		t.Error("the pages have no Python")
	}
	for _, b := range found {
		if !slices.ContainsFunc(sources, func(source string) bool { return strings.Contains(source, b.text) }) {
			t.Errorf("%s: no file of examples/django has these lines", b.place)
		}
	}
}
