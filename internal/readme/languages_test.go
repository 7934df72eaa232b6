package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Code of other languages in the pages is copied from files of the examples, which have their own tests.
func TestOtherLanguagesAreFromTheExamples(t *testing.T) {
	t.Parallel()
	for language, extension := range map[string]string{"python": ".py", "javascript": ".js", "java": ".java"} {
		var sources []string
		check(t, fs.WalkDir(os.DirFS(filepath.Join(root, "examples")), ".", func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			if err == nil && strings.HasSuffix(path, extension) {
				sources = append(sources, read(t, "examples/"+path).text)
			}
			return err
		}))
		found := blocks(t, language)
		if len(found) == 0 {
			t.Errorf("the pages have no %s", language)
		}
		for _, b := range found {
			if !slices.ContainsFunc(sources, func(source string) bool { return strings.Contains(source, b.text) }) {
				t.Errorf("%s: no %s file of the examples has these lines", b.place, language)
			}
		}
	}
}
