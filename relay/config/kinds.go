package config

import (
	"fmt"
	"slices"
	"strings"
)

// Kinds says which kinds of sinks there are, and what each can be told.
type Kinds interface {
	// Kinds returns the names of all kinds.
	Kinds() []string

	// Settings returns what a kind can be told.
	Settings(kind string) []Setting

	// Check says what is wrong with a sink's settings, or nil. It opens nothing,
	// and its error repeats no secret.
	Check(kind string, settings map[string]any) error
}

// Setting is one setting of a kind of sink.
type Setting struct {
	Name   string
	Secret bool // can be given as name_file too
}

// settings reads what a sink's kind can be told, from the entries that are not
// the relay's own.
func (r *reader) settings(n *node, entries []entry, sink *Sink) {
	at := n.get("type")
	if at.broken {
		return
	}
	if !slices.Contains(r.kinds.Kinds(), sink.Type) {
		r.fail(at, fmt.Sprintf("there is no type %q%s", sink.Type, suggest(sink.Type, r.kinds.Kinds())))
		return
	}
	before := len(r.problems.List)
	fields := settingFields(r.kinds.Settings(sink.Type))
	sink.Settings = map[string]any{}
	for _, e := range fillKnown(r, &node{path: n.path, entries: entries}, fields, &sink.Settings) {
		r.unknown(n, e, append(names(fields), names(sinkFields())...))
	}
	if len(r.problems.List) > before || anyBroken(n) {
		return
	}
	if err := r.kinds.Check(sink.Type, sink.Settings); err != nil {
		r.checked(n, err)
	}
}

// settingFields are fields that put a value into a map as it is.
func settingFields(settings []Setting) (fields []field[map[string]any]) {
	for _, s := range settings {
		fields = append(fields, field[map[string]any]{
			name:   s.Name,
			secret: s.Secret,
			set: func(r *reader, target *map[string]any, n *node) {
				if n.kind == isNothing {
					r.fail(n, "needs a value")
				}
				(*target)[s.Name] = n.plain()
			},
		})
	}
	return fields
}

// checked reports what a kind found wrong, at the settings that it names.
func (r *reader) checked(n *node, err error) {
	for _, line := range strings.Split(err.Error(), "\n") {
		at := n
		for _, e := range n.entries {
			if strings.HasPrefix(line, e.key+":") {
				at, line = e.node, strings.TrimSpace(line[len(e.key)+1:])
				break
			}
		}
		r.report(at.line, at.column, at.path, line)
	}
}

func anyBroken(n *node) bool {
	if n.broken || slices.ContainsFunc(n.items, anyBroken) {
		return true
	}
	return slices.ContainsFunc(n.entries, func(e entry) bool { return anyBroken(e.node) })
}
