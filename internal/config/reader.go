package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// reader reads settings and collects problems.
type reader struct {
	folder      string // relative file names in ..._file settings are resolved against this folder
	env         func(string) (string, bool)
	kinds       *sinks.Registry
	problems    Problems
	secrets     []origin  // the files and commands from which secrets are read
	commands    *commands // nil: no command runs
	sourcesOnly bool      // only the commands of sources run
	password    string    // the value of the current source's setting `password`
	pending     bool      // a secret is unknown, because its command didn't run
	stale       []error   // errors of failed commands; their previous secrets stay in use
}

func newReader(kinds *sinks.Registry) *reader {
	return &reader{env: os.LookupEnv, kinds: kinds}
}

func (r *reader) report(line, column int, path, text string) {
	r.problems.List = append(r.problems.List, Problem{Line: line, Column: column, Path: path, Text: text})
}

// fail reports a problem with a node, unless a problem with the node was reported before.
func (r *reader) fail(n *node, text string) {
	if !n.broken {
		r.report(n.line, n.column, n.path, text)
	}
	n.broken = true
}

func (r *reader) err() error {
	if len(r.problems.List) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems.List, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &r.problems
}

// scalar returns a node's text, or reports a problem and returns false if the node is not a scalar.
func (r *reader) scalar(n *node) (string, bool) {
	if n.kind != isScalar {
		r.fail(n, "needs a value, not "+n.kind.String())
	}
	return n.text, !n.broken
}

// items returns a list's nodes.
func (r *reader) items(n *node) []*node {
	if n.kind != isList {
		r.fail(n, "needs a list, not "+n.kind.String())
	}
	return n.items
}

// mapping returns true if the node is a mapping with entries. Otherwise it reports a problem, and returns false.
func (r *reader) mapping(n *node) bool {
	switch {
	case n.kind != isMapping:
		r.fail(n, "needs settings below it, not "+n.kind.String())
	case len(n.entries) == 0:
		r.fail(n, "needs settings below it, but has none")
	}
	return !n.broken
}

// Problem is a mistake in a configuration.
type Problem struct {
	Line, Column int    // the position in the file, from 1; 0 if unknown
	Path         string // the setting, such as sources.orders.lease
	Text         string // describes the mistake and how to correct it; never has a secret

	passing bool // the problem is a command that has failed and may succeed later
}

// String returns the problem on one line, without the file's name.
func (p Problem) String() string {
	text := p.Text
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Line == 0 {
		return text
	}
	return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, text)
}

// Problems is the error of an invalid configuration. It lists all problems in the
// order of the file.
type Problems struct {
	File string
	List []Problem
}

// MayPass reports whether the configuration may become valid without a change, because its only problems are commands that have
// failed.
func (p *Problems) MayPass() bool {
	return !slices.ContainsFunc(p.List, func(problem Problem) bool { return !problem.passing })
}

// Error returns one line for each problem, with the file, line and column.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = p.File + ":" + problem.String()
		if problem.Line == 0 {
			lines[i] = p.File + ": " + problem.String()
		}
	}
	return strings.Join(lines, "\n")
}

// unknown reports a key that is not a setting, and suggests known settings.
func (r *reader) unknown(n *node, e entry, known []string) {
	r.report(e.line, e.column, n.child(e.key), "is not a setting here"+suggest(e.key, "the settings are", known))
}

// addresses has the names of settings for a server's address, in this and other programs.
var addresses = []string{"url", "uri", "dsn", "address", "addresses", "endpoint", "host", "hosts", "server", "servers", "broker", "brokers", "bootstrap_servers"}

// suggest returns text to append to an error about an unknown name. The text suggests the most similar known name. If no known name is
// similar, but the unknown name and a known name are both in addresses, it suggests that known name. Otherwise the text consists of the
// second argument and all known names.
func suggest(name, words string, known []string) string {
	near := nearest(name, known)
	if near == "" && slices.Contains(addresses, name) {
		if i := slices.IndexFunc(known, func(word string) bool { return slices.Contains(addresses, word) }); i >= 0 {
			near = known[i]
		}
	}
	if near != "" {
		return ": did you mean " + near + "?"
	}
	return ": " + words + " " + strings.Join(known, ", ")
}

// nearest returns the known word that is most similar to the given word, or "" if none is similar.
func nearest(word string, known []string) string {
	best, least := "", 3
	for _, candidate := range known {
		if d := distance(word, candidate); d < least && d < len(candidate) {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns the number of bytes to insert, remove or change to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
