package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// settings reads what a sink's kind can be told, from the entries that are not
// the relay's own.
func (r *reader) settings(n *node, entries []entry, sink *Sink) {
	at := n.get("type")
	if at.broken {
		return
	}
	kind, ok := r.kinds.Kind(sink.Type)
	if !ok {
		r.fail(at, fmt.Sprintf("there is no type %q%s", sink.Type, suggest(sink.Type, r.kindNames())))
		return
	}
	fields := settingFields(kind)
	sink.Settings = map[string]any{}
	for _, e := range fillKnown(r, &node{path: n.path, entries: entries}, fields, &sink.Settings) {
		r.unknown(n, e, append(names(fields), names(sinkFields())...))
	}
	_, err := kind.Parse(sink.Settings)
	if err == nil && !anyBroken(n) {
		_, err = sink.Make(r.kinds)
	}
	if err != nil {
		r.refused(n, err)
	}
}

func (r *reader) kindNames() (names []string) {
	for _, kind := range r.kinds.Kinds() {
		names = append(names, kind.Name)
	}
	return names
}

// settingFields are fields that put values into a map as they are: the kind
// itself checks them.
func settingFields(kind sinks.Kind) (fields []field[map[string]any]) {
	for _, f := range kind.Fields {
		fields = append(fields, field[map[string]any]{
			name:   f.Name,
			secret: f.Type == settings.TypeSecret,
			set: func(r *reader, target *map[string]any, n *node) {
				if n.kind == isNothing {
					r.fail(n, "needs a value; leave it out for the default")
				}
				if f.Type == settings.TypeSecretMap {
					r.secretFiles(n)
				}
				(*target)[f.Name] = n.plain()
			},
		})
	}
	return fields
}

// secretFiles replaces each name_file of a mapping by name and what the file
// holds.
func (r *reader) secretFiles(n *node) {
	for i, e := range n.entries {
		name, isFile := strings.CutSuffix(e.key, "_file")
		if !isFile {
			continue
		}
		if n.get(name) != nil {
			r.fail(e.node, "is given beside "+name+": remove one of them")
		} else if content, ok := r.secretFile(e.node); ok {
			n.entries[i] = entry{name, e.line, e.column, textNode(e.node.path, content)}
		}
	}
}

// refused reports what a kind found wrong with its settings, at their places.
func (r *reader) refused(n *node, err error) {
	var list settings.Errors
	if !errors.As(err, &list) {
		r.fail(n, err.Error())
		return
	}
	for _, problem := range list {
		at := n.get(problem.Field)
		if at == nil {
			at = n.get(problem.Field + "_file")
		}
		if at == nil {
			r.report(n.line, n.column, n.child(problem.Field), problem.Err.Error())
			continue
		}
		r.fail(at, problem.Err.Error())
	}
}

func anyBroken(n *node) bool {
	if n.broken || slices.ContainsFunc(n.items, anyBroken) {
		return true
	}
	return slices.ContainsFunc(n.entries, func(e entry) bool { return anyBroken(e.node) })
}
