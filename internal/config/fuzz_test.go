package config

import (
	"errors"
	"testing"
)

// FuzzParse searches for a text that makes Parse panic, or that Parse refuses without
// reporting a problem.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		smallest, "", "~", "a: b", "- a", "{", "[[[", "&a [*a]", "a: &x\n  <<: *x\n", "? a\n: b", "sources: {? [a] : b}", "!!binary x",
		"sources:\n  s: {database: \"${A:-b}\", topics: [a, ~, {}]}", "routes:\n  -\n  - {}\n  - [a]\n", "a: |\n  b\n", "\x00", "---\n---\n", "%YAML 1.2\n---\na: b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("rowrelay.yaml", []byte(text), kinds())
		var problems *Problems
		switch {
		case err == nil && (len(c.Sources) == 0 || len(c.Sinks) == 0):
			t.Errorf("accepted without sources or sinks: %+v", c)
		case err != nil && (!errors.As(err, &problems) || len(problems.List) == 0):
			t.Errorf("refused without a problem: %v", err)
		}
	})
}
