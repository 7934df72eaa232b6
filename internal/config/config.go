// Package config reads the daemon's configuration file: strictly, with
// everything that is wrong told at once and each problem's line.
//
// The file is YAML. In any value, ${NAME} and ${NAME:-default} stand for
// environment variables, and $${ for a literal ${. A secret can be given by the
// name of a file that holds it, as name_file; one newline at its end is cut.
// deploy/rowrelay.example.yaml shows every setting.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// Config is what the daemon was told.
type Config struct {
	Sources []Source // at least one; in the order of the file, as all lists
	Sinks   []Sink   // at least one
	Routes  []Route  // none: every topic goes to the only sink
	Admin   Admin
	Log     Log

	again func() (Config, error) // reads it again; nil: it has no file
}

// Again reads the files of secrets again, as they are now, for the same text of the configuration: what was written
// into the file meanwhile waits for a reload.
func (c Config) Again() (Config, error) {
	if c.again == nil {
		return c, nil
	}
	return c.again()
}

// Load reads a configuration from a file. kinds are the sinks that there are.
// The error is a [*Problems] if the content can't be used, and it matches
// [fs.ErrNotExist] if there is no such file.
func Load(name string, kinds *sinks.Registry) (Config, error) {
	content, err := readLimited(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("read the configuration %s: %w (name another with --config)", name, fs.ErrNotExist)
	}
	if err != nil {
		return Config{}, fmt.Errorf("the configuration %w", err)
	}
	return load(name, content, kinds)
}

func load(name string, content []byte, kinds *sinks.Registry) (Config, error) {
	c, err := Parse(name, content, kinds)
	for i := range c.Sources {
		c.Sources[i].File = name
	}
	c.again = func() (Config, error) { return load(name, content, kinds) }
	return c, err
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

// check reports what is missing, routes that lead nowhere or say the same twice,
// and sources whose topics have no way to go.
func (r *reader) check(root *node, c *Config) {
	if root.kind != isMapping {
		return
	}
	for _, needed := range []string{"sources", "sinks"} {
		if root.get(needed) == nil {
			r.report(root.line, root.column, needed, "is missing: at least one is needed")
		}
	}
	for i, route := range c.Routes {
		n := root.get("routes").items[i]
		exists := func(at *node, what, name string, there []string) {
			if at != nil && !at.broken && !slices.Contains(there, name) {
				r.fail(at, fmt.Sprintf("there is no %s %q%s", what, name, suggest(name, "there is", there)))
			}
		}
		exists(n.get("sink"), "sink", route.Sink, c.SinkNames())
		exists(n.get("source"), "source", route.Source, c.SourceNames())
		if at := n.get("sinks"); at != nil {
			for j, item := range at.items {
				exists(item, "sink", route.Sinks[j], c.SinkNames())
			}
		}
		for j, earlier := range c.Routes[:i] {
			common := earlier.Source == "" || route.Source == "" || earlier.Source == route.Source
			same := earlier.Topic == route.Topic && earlier.Prefix == route.Prefix && earlier.Pattern == route.Pattern && earlier.Also == route.Also
			again := slices.ContainsFunc(sinksOf(earlier.Route), func(name string) bool { return slices.Contains(sinksOf(route.Route), name) })
			if common && same && again && !anyBroken(n) {
				r.fail(n, fmt.Sprintf("says the same as routes[%d]: remove one of them", j))
			}
		}
	}
	r.checkDeadLetters(root, c)
	r.checkAdmin(root, c)
	if len(c.Routes) == 0 && len(c.Sinks) > 1 {
		r.report(root.line, root.column, "routes", "are needed where there is more than one sink: say which topic goes to which")
	}
	for _, source := range c.Sources {
		if len(c.Routes) > 0 && len(c.RoutesOf(source.Name)) == 0 {
			r.fail(root.get("sources").get(source.Name), "has no route: add one with this source, or without any")
		}
	}
}

// SinkNames are the sinks' names, in their order.
func (c Config) SinkNames() (names []string) {
	for _, sink := range c.Sinks {
		names = append(names, sink.Name)
	}
	return names
}

// SourceNames are the sources' names, in their order.
func (c Config) SourceNames() (names []string) {
	for _, source := range c.Sources {
		names = append(names, source.Name)
	}
	return names
}

const (
	maxFile   = 1 << 20  // bytes of a configuration
	maxSecret = 64 << 10 // bytes of a secret's file
)

// readLimited reads a regular file of at most so many bytes.
func readLimited(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("can't be read: %s is a folder", name)
	}
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	if int64(len(content)) > most {
		return nil, fmt.Errorf("is too long: %s has more than %d bytes", name, most)
	}
	return content, nil
}
