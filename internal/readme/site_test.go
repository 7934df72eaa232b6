package readme

import (
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

var (
	navEntry  = regexp.MustCompile(`(?m)^      - [^:]+: (\S+\.md)$`)
	pageTitle = regexp.MustCompile(`(?m)^# (.*)$`)
)

func TestSiteNavigationListsEveryPage(t *testing.T) {
	t.Parallel()
	var site map[string]any
	if err := yaml.Unmarshal([]byte(read(t, "mkdocs.yml").text), &site); err != nil {
		t.Errorf("mkdocs.yml: %v", err)
	}
	listed := map[string]int{}
	for _, m := range navEntry.FindAllStringSubmatch(read(t, "mkdocs.yml").text, -1) {
		listed[m[1]]++
	}
	for _, p := range pages(t) {
		if listed[p.name] != 1 {
			t.Errorf("mkdocs.yml lists %s %d times, want once", p.name, listed[p.name])
		}
		delete(listed, p.name)
	}
	for name := range listed {
		t.Errorf("mkdocs.yml lists %s, which doesn't exist", name)
	}
}

func TestPageTitlesAreUnique(t *testing.T) {
	t.Parallel()
	titles := map[string]string{}
	for _, p := range pages(t) {
		m := pageTitle.FindStringSubmatch(p.withoutCode())
		if m == nil || !strings.HasPrefix(p.text, m[0]+"\n") {
			t.Errorf("%s doesn't begin with a title", p.name)
			continue
		}
		if other := titles[m[1]]; other != "" {
			t.Errorf("%s and %s have the title %q", other, p.name, m[1])
		}
		titles[m[1]] = p.name
	}
}
