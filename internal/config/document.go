package config

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document turns the text of a YAML file into nodes.
func (r *reader) document(text []byte) *node {
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	bodies := bodies(file)
	if len(bodies) == 0 {
		r.report(0, 0, "", "is empty: at least a source and a sink are needed")
		return nil
	}
	for _, more := range bodies[1:] {
		at := position(more)
		r.report(at.Line, at.Column, "", "a configuration is one document: remove what follows ---")
	}
	return r.convert(bodies[0], "")
}

func bodies(file *ast.File) []ast.Node {
	var found []ast.Node
	for _, document := range file.Docs {
		if document.Body != nil {
			found = append(found, document.Body)
		}
	}
	return found
}

// syntax reports only the message of a parser's error, because the error's full text
// quotes the file, which may have secrets.
func (r *reader) syntax(err error) {
	var positioned yaml.Error
	if !errors.As(err, &positioned) || positioned.GetToken() == nil {
		r.report(0, 0, "", "isn't valid YAML")
		return
	}
	at := positioned.GetToken().Position
	r.report(at.Line, at.Column, "", "isn't valid YAML: "+positioned.GetMessage())
}

func (r *reader) convert(from ast.Node, path string) *node {
	n := &node{path: path}
	at := position(from)
	n.line, n.column = at.Line, at.Column
	switch from := from.(type) {
	case *ast.MappingNode:
		n.kind = isMapping
		r.convertEntries(n, from.Values)
	case *ast.MappingValueNode:
		n.kind = isMapping
		r.convertEntries(n, []*ast.MappingValueNode{from})
	case *ast.SequenceNode:
		n.kind = isList
		for i, item := range from.Values {
			n.items = append(n.items, r.convert(item, n.item(i)))
		}
	case *ast.NullNode:
		n.kind = isNothing
	default:
		r.convertScalar(n, from)
	}
	return n
}

func (r *reader) convertEntries(n *node, values []*ast.MappingValueNode) {
	for _, value := range values {
		at := value.Key.GetToken().Position
		key, ok := keyText(value.Key)
		if !ok {
			r.report(at.Line, at.Column, n.path, "a key must be a plain word; merge keys aren't supported")
			continue
		}
		if n.get(key) != nil {
			r.report(at.Line, at.Column, n.child(key), "is given twice")
			continue
		}
		child := r.convert(value.Value, n.child(key))
		if child.kind == isMapping || child.kind == isNothing {
			child.line, child.column = at.Line, at.Column // an error about a missing setting is best reported at the key
		}
		n.entries = append(n.entries, entry{key, at.Line, at.Column, child})
	}
}

// position returns where a node begins: for a mapping, at its first key and not at the
// colon.
func position(n ast.Node) *token.Position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return position(n.Values[0])
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken().Position
	}
	return n.GetToken().Position
}

func keyText(key ast.MapKeyNode) (string, bool) {
	if text, ok := key.(*ast.StringNode); ok {
		return text.Value, true
	}
	if key.IsMergeKey() {
		return "", false
	}
	if scalar, ok := key.(ast.ScalarNode); ok {
		return scalar.GetToken().Value, true
	}
	return "", false
}

func (r *reader) convertScalar(n *node, from ast.Node) {
	n.kind = isScalar
	switch from := from.(type) {
	case *ast.StringNode:
		r.expandInto(n, from.Value)
	case *ast.LiteralNode:
		r.expandInto(n, from.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		n.raw = from.GetToken().Value
		n.text, n.value = n.raw, typed(from.(ast.ScalarNode))
	default:
		n.broken = true
		r.report(n.line, n.column, n.path, "anchors, aliases and tags aren't supported: write the value itself")
	}
}

func typed(from ast.ScalarNode) any {
	if value, ok := from.GetValue().(uint64); ok && value <= 1<<63-1 {
		return int64(value)
	}
	return from.GetValue()
}

// kind is the form of a node.
type kind int

const (
	isNothing kind = iota // no value, or null
	isScalar
	isList
	isMapping
)

func (k kind) String() string {
	return [...]string{"nothing", "a value", "a list", "a mapping"}[k]
}

// node is a value of the file with its position. It is independent of the YAML library,
// so a flag can be read like a setting of the file.
type node struct {
	kind         kind
	line, column int
	path         string

	raw    string // a scalar before ${NAME} is replaced; safe to show, unlike the value of a variable
	text   string // a scalar after ${NAME} was replaced
	value  any    // a scalar with its YAML type: string, int64, uint64, float64 or bool
	broken bool   // a problem with the node was reported, and further problems with it are not reported

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

// get returns the value of a key, or nil if the key is missing.
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

// variable matches the text between ${ and }: NAME or NAME:-default.
var variable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?$`)

// expand replaces ${NAME} and ${NAME:-default} by the values of environment
// variables. The default is also used for an empty variable. $${ becomes ${, and
// any other $ stays as it is.
func expand(text string, env func(string) (string, bool)) (string, error) {
	var out strings.Builder
	var errs []error
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), errors.Join(errs...)
		}
		if literal, escaped := strings.CutSuffix(before, "$"); escaped {
			out.WriteString(literal + "${")
			text = rest
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", errors.Join(append(errs, errors.New("has a ${ without its }: write $${ for a literal ${"))...)
		}
		value, err := lookUp(name, env)
		if err != nil {
			errs = append(errs, err)
		}
		out.WriteString(before + value)
		text = after
	}
}

func lookUp(reference string, env func(string) (string, bool)) (string, error) {
	parts := variable.FindStringSubmatch(reference)
	if parts == nil {
		return "", fmt.Errorf("has ${%s}, which isn't a variable: write ${NAME} or ${NAME:-default}, or $${ for a literal ${", reference)
	}
	value, set := env(parts[1])
	switch {
	case parts[2] != "" && value == "":
		return parts[3], nil
	case !set:
		return "", fmt.Errorf("needs the environment variable %s, which isn't set: set it, or give a default with ${%s:-…}", parts[1], parts[1])
	}
	return value, nil
}

func (r *reader) expandInto(n *node, raw string) {
	text, err := expand(raw, r.env)
	n.raw, n.text, n.value = raw, text, text
	if err == nil {
		return
	}
	n.broken = true
	for _, each := range err.(interface{ Unwrap() []error }).Unwrap() {
		r.report(n.line, n.column, n.path, each.Error())
	}
}
