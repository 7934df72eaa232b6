package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// variable is the whole of ${NAME} or ${NAME:-default}.
var variable = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?$`)

// expand replaces ${NAME} and ${NAME:-default} by the environment's values. A
// default also stands for a variable that is set to nothing. $${ is a literal
// ${, and any other $ stands for itself.
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
