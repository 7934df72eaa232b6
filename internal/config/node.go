package config

import "strconv"

// kind is the shape of a node.
type kind int

const (
	isNothing kind = iota // or null
	isScalar
	isList
	isMapping
)

func (k kind) String() string {
	return [...]string{"nothing", "a value", "a list", "a mapping"}[k]
}

// node is a value of the file with its place, free of the YAML library. The
// settings are read from nodes only, so that a flag can be one as well.
type node struct {
	kind         kind
	line, column int
	path         string

	raw    string // a scalar as it was written: safe to show, unlike what a variable holds
	text   string // a scalar after expansion
	value  any    // a scalar as YAML types it: string, int64, uint64, float64 or bool
	broken bool   // a problem was reported already

	items   []*node
	entries []entry
}

// entry is a key of a mapping and its value.
type entry struct {
	key          string
	line, column int
	node         *node
}

func textNode(path, text string) *node {
	return &node{kind: isScalar, path: path, raw: text, text: text, value: text}
}

func (n *node) child(key string) string {
	if n.path == "" {
		return key
	}
	return n.path + "." + key
}

func (n *node) item(i int) string { return n.path + "[" + strconv.Itoa(i) + "]" }

// get returns the value of a key, or nil.
func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.node
		}
	}
	return nil
}

// plain returns the node as maps, slices and scalars.
func (n *node) plain() any {
	switch n.kind {
	case isMapping:
		values := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			values[e.key] = e.node.plain()
		}
		return values
	case isList:
		values := make([]any, len(n.items))
		for i, item := range n.items {
			values[i] = item.plain()
		}
		return values
	default:
		return n.value
	}
}
