package readme

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\[([^\[\]]*)\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

func TestLinksResolve(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, at := range link.FindAllStringSubmatchIndex(p.withoutCode(), -1) {
			text, target := p.withoutCode()[at[2]:at[3]], p.withoutCode()[at[4]:at[5]]
			if problem := broken(t, p, text, target); problem != "" {
				t.Errorf("%s:%d: %s", p.name, 1+strings.Count(p.withoutCode()[:at[0]], "\n"), problem)
			}
		}
	}
}

// broken describes what is wrong with a link. It returns "" if the link resolves, or if
// its target is outside the project.
func broken(t testing.TB, p page, text, target string) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		return err.Error()
	}
	if to.Scheme != "" {
		return ""
	}
	name := p.name
	if to.Path != "" {
		name = filepath.Join(filepath.Dir(p.name), to.Path)
	}
	info, err := os.Stat(filepath.Join(root, name))
	switch {
	case err != nil:
		return fmt.Sprintf("[%s] leads to %s, which doesn't exist", text, target)
	case info.IsDir():
		return ""
	case strings.HasSuffix(name, ".md"):
		return brokenAnchor(read(t, name), to.Fragment)
	case strings.HasSuffix(name, ".go"):
		return brokenName(read(t, name), text)
	}
	return ""
}

func brokenAnchor(p page, anchor string) string {
	if anchor == "" {
		return ""
	}
	for _, h := range heading.FindAllStringSubmatch(p.withoutCode(), -1) {
		if slug(h[1]) == anchor {
			return ""
		}
	}
	return fmt.Sprintf("%s has no heading #%s", p.name, anchor)
}

var notInSlugs = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// slug returns the anchor that GitHub gives to a heading.
func slug(heading string) string {
	return strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// brokenName checks a link to a Go file. If the link's text is code, it must be the name
// of a function, a type or a check in the file.
func brokenName(p page, text string) string {
	name := strings.Trim(text, "`")
	if name == text {
		return ""
	}
	_, bare, qualified := strings.Cut(name, ".") // a type with its package
	if strings.Contains(p.text, "func "+name+"(") || qualified && strings.Contains(p.text, "\ntype "+bare+" ") || strings.Contains(p.text, `"`+name+`"`) {
		return ""
	}
	return fmt.Sprintf("%s has no function, type or check %s", p.name, name)
}

// The promise has six items, and each links to tests.
func TestEachPromiseNamesItsTests(t *testing.T) {
	t.Parallel()
	_, promise, found := strings.Cut(read(t, "docs/semantics.md").text, "\n## The promise\n")
	promise, _, ended := strings.Cut(promise, "\n## ")
	if !found || !ended {
		t.Fatal("docs/semantics.md has no section The promise")
	}
	lines := regexp.MustCompile(`(?m)^\d\. `).Split(promise, -1)[1:]
	if len(lines) != 6 {
		t.Errorf("the promise has %d lines, want 6", len(lines))
	}
	for i, line := range lines {
		proofs := 0
		for _, l := range link.FindAllStringSubmatch(line, -1) {
			if strings.HasSuffix(l[2], "_test.go") || strings.Contains(l[2], "storetest/") {
				proofs++
			}
		}
		if proofs == 0 {
			t.Errorf("line %d of the promise links to no test", i+1)
		}
	}
}

func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	p := page{name: "relay/DESIGN.md"}
	for target, bad := range map[string]bool{
		"run.go": false, "../README.md": false, "../README.md#the-promise": false, "https://example.com/x": false, ".": false,
		"walk.go": true, "CHANGELOG.md": true, "../README.md#nowhere": true,
	} {
		if got := broken(t, p, "text", target); (got != "") != bad {
			t.Errorf("%s: %q", target, got)
		}
	}
	for text, bad := range map[string]bool{"`newByLanes`": false, "newByLaness": false, "`newByLaness`": true} {
		if got := broken(t, p, text, "run.go"); (got != "") != bad {
			t.Errorf("%s: %q", text, got)
		}
	}
}
