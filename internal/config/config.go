// Package config reads the daemon's configuration file. It is strict, and
// reports all problems together, each with its line.
//
// The file is YAML. In any value, ${NAME} and ${NAME:-default} are replaced by environment variables, and $${ by a
// literal ${. The value of a secret setting, such as password, can be in a file, which the setting password_file names, or
// can be printed by the program that password_command names. One newline at the end of the file or the output is removed.
// deploy/rowrelay.example.yaml has every setting.
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

// Config is the daemon's configuration. All lists are in the order of the file.
type Config struct {
	Sources []Source // at least one source
	Sinks   []Sink   // at least one sink
	Routes  []Route  // if it is empty, every topic goes to the only sink
	Admin   Admin
	Log     Log

	// Stale has the errors of commands that have failed. The previous secrets of these commands stay in use.
	Stale []error

	again func() (Config, error) // parses the same text and reads the secrets again; nil if the configuration has no file
}

// Again returns the configuration with the current secrets of its files and commands. It doesn't read the configuration file
// again, because a change to that file takes effect only at a reload. It doesn't wait for commands either: until a command has
// printed a new secret, the previous secret counts as the current one.
func (c Config) Again() (Config, error) {
	if c.again == nil {
		return c, nil
	}
	return c.again()
}

// Load reads a configuration from a file, and runs its commands. The argument kinds has the available kinds of
// sinks. The error is a [*Problems] if the content is invalid, and it matches
// [fs.ErrNotExist] if the file doesn't exist.
func Load(name string, kinds *sinks.Registry) (Config, error) { return loadFile(name, kinds, false) }

// LoadSources is like Load, but doesn't run the commands of sinks and of the admin server. So the sinks and the admin server may
// lack secrets.
func LoadSources(name string, kinds *sinks.Registry) (Config, error) {
	return loadFile(name, kinds, true)
}

func loadFile(name string, kinds *sinks.Registry, sourcesOnly bool) (Config, error) {
	content, err := readLimited(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("read the configuration %s: %w (give another file with --config)", name, fs.ErrNotExist)
	}
	if err != nil {
		return Config{}, fmt.Errorf("the configuration %w", err)
	}
	return load(name, content, kinds, newCommands(), sourcesOnly)
}

func load(name string, content []byte, kinds *sinks.Registry, commands *commands, sourcesOnly bool) (Config, error) {
	r := newReader(kinds)
	r.commands, r.sourcesOnly = commands, sourcesOnly
	c, err := r.configuration(name, content)
	for i := range c.Sources {
		c.Sources[i].File = name
	}
	c.again = func() (Config, error) { return load(name, content, kinds, commands, sourcesOnly) }
	return c, err
}

// Parse reads a configuration from the text of a file. The file's name appears
// in errors, and the names of files in ..._file settings are relative to its folder. Parse
// runs no commands. So if a secret of a sink comes from a command, Parse checks less of the
// sink's settings. The error is a [*Problems].
func Parse(file string, content []byte, kinds *sinks.Registry) (Config, error) {
	return newReader(kinds).configuration(file, content)
}

func (r *reader) configuration(file string, content []byte) (Config, error) {
	r.folder, r.problems.File = filepath.Dir(file), file
	var c Config
	if root := r.document(content); root != nil {
		fill(r, root, rootFields(), &c)
		r.check(root, &c)
	}
	c.Stale = r.stale
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
		{name: "admin", set: func(r *reader, c *Config, n *node) {
			before := len(r.secrets)
			fill(r, n, adminFields(), &c.Admin)
			c.Admin.secrets = r.secrets[before:]
		}},
		group("log", logFields(), func(c *Config) *Log { return &c.Log }),
	}
}

const maxName = 63

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// named calls the function `read` for each entry of a mapping whose keys are names, and returns the results.
func named[T any](r *reader, n *node, read func(name string, n *node) T) (all []T) {
	if !r.mapping(n) {
		return nil
	}
	for _, e := range n.entries {
		if !name.MatchString(e.key) {
			r.report(e.line, e.column, n.path, fmt.Sprintf(
				"%q isn't a name: use 1 to %d letters, digits, dots, hyphens and underscores, beginning with a letter or digit", e.key, maxName))
		}
		all = append(all, read(e.key, e.node))
	}
	return all
}

// check reports missing settings, routes to unknown sinks, duplicate routes, and
// sources without a route.
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
				r.fail(at, fmt.Sprintf("there is no %s %q%s", what, name, suggest(name, what+"s are", there)))
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
				r.fail(n, fmt.Sprintf("is a duplicate of routes[%d]: remove one of them", j))
			}
		}
	}
	r.checkDeadLetters(root, c)
	r.checkAdmin(root, c)
	if len(c.Routes) == 0 && len(c.Sinks) > 1 {
		r.report(root.line, root.column, "routes", "are needed, because there is more than one sink: add routes from topics to sinks")
	}
	for _, source := range c.Sources {
		if len(c.Routes) > 0 && len(c.RoutesOf(source.Name)) == 0 {
			r.fail(root.get("sources").get(source.Name), "has no route: add one with this source, or one without a source")
		}
	}
}

// SinkNames returns the names of the sinks, in the order of the file.
func (c Config) SinkNames() (names []string) {
	for _, sink := range c.Sinks {
		names = append(names, sink.Name)
	}
	return names
}

// SourceNames returns the names of the sources, in the order of the file.
func (c Config) SourceNames() (names []string) {
	for _, source := range c.Sources {
		names = append(names, source.Name)
	}
	return names
}

const (
	maxFile   = 1 << 20  // the maximum size of a configuration file in bytes
	maxSecret = 64 << 10 // the maximum size of a secret in bytes
)

// readLimited reads a file. It returns an error if the file has more bytes than the second argument.
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
