// Package config reads the daemon's configuration file: strictly, with
// everything that is wrong told at once and each problem's line.
//
// The file is YAML. In any value, ${NAME} and ${NAME:-default} stand for
// environment variables, and $${ for a literal ${. A secret can be given by the
// name of a file that holds it, as name_file; one newline at its end is cut.
// deploy/rowrelay.example.yaml shows every setting.
package config

import (
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/rowrelay/rowrelay/sinks"
)

// Config is what the daemon was told.
type Config struct {
	Sources []Source // at least one; in the order of the file, as all lists
	Sinks   []Sink   // at least one
	Routes  []Route  // none: every topic goes to the only sink
	Admin   Admin
	Log     Log
}

// Parse reads a configuration from the text of a file. The file's name stands
// in errors, and the ..._file settings are relative to its folder. The error
// is a [*Problems].
func Parse(file string, content []byte, kinds *sinks.Registry) (Config, error) {
	r := newReader(kinds)
	r.folder, r.problems.File = filepath.Dir(file), file
	var c Config
	if root := r.document(content); root != nil {
		fill(r, root, rootFields(), &c)
		r.check(root, &c)
	}
	return c, r.err()
}

func rootFields() []field[Config] {
	return []field[Config]{
		{name: "sources", set: func(r *reader, c *Config, n *node) { c.Sources = named(r, n, r.source) }},
		{name: "sinks", set: func(r *reader, c *Config, n *node) { c.Sinks = named(r, n, r.sink) }},
		{name: "routes", set: func(r *reader, c *Config, n *node) {
			for _, item := range r.items(n) {
				c.Routes = append(c.Routes, r.route(item))
			}
		}},
		group("admin", adminFields(), func(c *Config) *Admin { return &c.Admin }),
		group("log", logFields(), func(c *Config) *Log { return &c.Log }),
	}
}

const maxName = 63

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// named reads a mapping of names to things of one type.
func named[T any](r *reader, n *node, read func(name string, n *node) T) (all []T) {
	if !r.mapping(n) {
		return nil
	}
	for _, e := range n.entries {
		if !name.MatchString(e.key) {
			r.report(e.line, e.column, n.path, fmt.Sprintf(
				"%q isn't a name: 1 to %d letters, digits, dots, hyphens and underscores, beginning with a letter or digit", e.key, maxName))
		}
		all = append(all, read(e.key, e.node))
	}
	return all
}

func (r *reader) check(root *node, c *Config) {
	if root.kind != isMapping {
		return
	}
	for _, needed := range []string{"sources", "sinks"} {
		if root.get(needed) == nil {
			r.report(root.line, root.column, needed, "is missing: at least one is needed")
		}
	}
	r.checkRoutes(root, c)
}

func (c *Config) sinkNames() (names []string) {
	for _, sink := range c.Sinks {
		names = append(names, sink.Name)
	}
	return names
}

func (c *Config) sourceNames() (names []string) {
	for _, source := range c.Sources {
		names = append(names, source.Name)
	}
	return names
}
