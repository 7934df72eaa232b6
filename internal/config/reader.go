package config

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// reader reads settings and collects what is wrong with them.
type reader struct {
	folder   string // that ..._file settings are relative to
	env      func(string) (string, bool)
	kinds    *sinks.Registry
	problems Problems
}

func newReader(kinds *sinks.Registry) *reader {
	return &reader{env: os.LookupEnv, kinds: kinds}
}

func (r *reader) report(line, column int, path, text string) {
	r.problems.List = append(r.problems.List, Problem{line, column, path, text})
}

// fail reports a problem with a node, once.
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
	r.problems.sort()
	return &r.problems
}

// scalar returns a node's text, or false if it has none.
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

// mapping says whether the node is a mapping with something in it.
func (r *reader) mapping(n *node) bool {
	switch {
	case n.kind != isMapping:
		r.fail(n, "needs settings below it, not "+n.kind.String())
	case len(n.entries) == 0:
		r.fail(n, "needs settings below it, and has none")
	}
	return !n.broken
}

// secretFile reads the file that a ..._file setting names, without the newline
// at its end. A relative name is relative to the configuration's folder.
func (r *reader) secretFile(n *node) (string, bool) {
	name, ok := r.scalar(n)
	if !ok {
		return "", false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.folder, name)
	}
	content, err := readLimited(name, maxSecret)
	if err != nil {
		r.fail(n, err.Error())
		return "", false
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	if secret == "" {
		r.fail(n, "names an empty file: "+name)
	}
	return secret, secret != ""
}
