package arrows

import (
	"fmt"
	"slices"
	"strings"
)

// rule has a sentence about imports, and a function that finds violations of the sentence.
type rule struct {
	sentence string
	broken   func(Import) bool
}

var rules = []rule{
	{"the arrows between packages go another way", againstArrow},
	{"no sink imports another", sinkToSink},
	{"only commands import database drivers", strayDriver},
	{"a library stays with the packages that are there for it", strayLibrary},
	{"only tests import testing", strayTesting},
	{"only tests import their helpers", strayHelper},
}

// Violations returns a sentence for each import that breaks a rule.
func Violations(imports []Import) []string {
	var found []string
	for _, i := range imports {
		for _, r := range rules {
			if r.broken(i) {
				found = append(found, fmt.Sprintf("%s imports %s: %s", i.File, i.Path, r.sentence))
			}
		}
	}
	return found
}

func againstArrow(i Import) bool {
	for _, a := range arrows {
		if matches(a.from, i.folder()) {
			return !a.allows(i)
		}
	}
	return false
}

func sinkToSink(i Import) bool {
	own, _ := i.own()
	from, to := sinkOf(i.folder()), sinkOf(own)
	return from != "" && to != "" && from != to
}

// sinkOf returns the name of the sink to which a folder belongs; it is empty if the folder
// belongs to no sink.
func sinkOf(folder string) string {
	rest, ok := strings.CutPrefix(folder, "sinks/")
	if !ok || testHelper(folder) || folder == "sinks/cloudevents" || folder == "sinks/oauth2" || folder == "sinks/settings" {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func strayDriver(i Import) bool {
	for driver, friends := range drivers {
		if within(i.Path, driver) {
			return !isCommand(i.folder()) && !testHelper(i.folder()) && !slices.Contains(friends, i.folder())
		}
	}
	return false
}

func strayLibrary(i Import) bool {
	for library, packages := range homes {
		if within(i.Path, library) {
			return !slices.ContainsFunc(packages, func(pattern string) bool { return matches(pattern, i.folder()) })
		}
	}
	return false
}

func strayTesting(i Import) bool {
	return within(i.Path, "testing") && !testHelper(i.folder())
}

func strayHelper(i Import) bool {
	own, _ := i.own()
	return testHelper(own) && !testHelper(i.folder())
}

func isCommand(folder string) bool { return matches("cmd/*", folder) }
