// Package readme checks the project's pages: programs compile, commands exist, configurations
// load, SQL runs, links resolve, and generated tables agree with the code, the tests and the
// benchmarks.
package readme

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository's root, relative to this folder.
const root = "../.."

// page is a Markdown file.
type page struct {
	name string // path relative to the root
	text string
}

// block is a fenced piece of code in a page.
type block struct {
	place    string // the page and the line
	language string
	run      bool // a comment marks it to be run
	text     string
}

// mainPages lists the pages whose code this package tests. The code in other pages is tested
// by other packages. Scripts run in the order of the list, in one folder.
var mainPages = []string{
	"README.md", "docs/getting-started.md", "docs/library.md", "docs/sidecar.md", "docs/django.md", "docs/migration-tools.md", "docs/sqlalchemy.md", "docs/node.md", "docs/spring.md", "docs/lanes-or-rows.md", "docs/semantics.md", "docs/parked.md", "docs/replay.md", "docs/pausing.md",
	"docs/several-sinks.md", "docs/expiry.md", "docs/operating.md", "docs/admin.md", "docs/sinks.md", "docs/configuration.md", "docs/commands.md", "docs/metrics.md",
	"relay/DESIGN.md", "CHANGELOG.md", "plugins/README.md",
}

func read(t testing.TB, name string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	check(t, err)
	return page{name, string(text)}
}

// pages returns every page of the project.
func pages(t testing.TB) (found []page) {
	t.Helper()
	check(t, fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && len(path) > 1 && (entry.Name()[0] == '.' || entry.Name() == "testdata" || entry.Name() == "bin"):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(path, ".md"):
			found = append(found, read(t, path))
		}
		return nil
	}))
	return found
}

var fenced = regexp.MustCompile("(?ms)^(<!-- run -->\n)?```([a-z]*)\n(.*?)^```$")

// blocks returns the code blocks of the main pages in one language.
func blocks(t testing.TB, language string) (found []block) {
	t.Helper()
	for _, name := range mainPages {
		p := read(t, name)
		for _, at := range fenced.FindAllStringSubmatchIndex(p.text, -1) {
			b := block{
				place:    fmt.Sprintf("%s:%d", name, 1+strings.Count(p.text[:at[6]], "\n")),
				language: p.text[at[4]:at[5]], run: at[2] >= 0, text: p.text[at[6]:at[7]],
			}
			if b.language == language {
				found = append(found, b)
			}
		}
	}
	return found
}

// withoutCode returns the text with empty lines in place of fenced code, so line numbers stay
// the same.
func (p page) withoutCode() string {
	return fenced.ReplaceAllStringFunc(p.text, func(code string) string {
		return strings.Repeat("\n", strings.Count(code, "\n"))
	})
}

// Each language in which the pages have code has a test, because untested code would become
// outdated unnoticed.
func TestEveryBlockHasATestedLanguage(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{"go": true, "python": true, "javascript": true, "java": true, "sh": true, "sql": true, "yaml": true, "mermaid": true, "text": true}
	for _, name := range mainPages {
		p := read(t, name)
		found := fenced.FindAllStringSubmatch(p.text, -1)
		if fences := strings.Count("\n"+p.text, "\n```"); fences != 2*len(found) {
			t.Errorf("%s has %d fences, which make %d blocks", name, fences, len(found))
		}
		for _, b := range found {
			if !tried[b[2]] {
				t.Errorf("%s: no test knows blocks of language %q", name, b[2])
			}
		}
	}
}
