package adopt

import (
	"fmt"
	"slices"
	"strings"
)

// This file splits the SQL expressions of a mapping into tokens, to find the names of columns.

// token is a part of an expression: a name, or other text, which isn't interpreted.
type token struct {
	text string
	name string // the identifier, without quotes; empty for other text
	bare bool   // the identifier had no quotes
}

// tokens splits an expression. Literals, numbers, operators and spaces are tokens without a name.
func tokens(expression string) (list []token, err error) {
	for rest := expression; rest != ""; {
		size, name, bare := 1, "", false
		switch c := rest[0]; {
		case c == '\'':
			size = quotedSize(rest, '\'')
		case c == '"' || c == '`':
			if size = quotedSize(rest, c); size > 1 {
				quote := string(c)
				name = strings.ReplaceAll(rest[1:size-1], quote+quote, quote)
			}
		case isLetter(c):
			for size < len(rest) && (isLetter(rest[size]) || isDigit(rest[size])) {
				size++
			}
			name, bare = rest[:size], true
		case isDigit(c): // so that the e of 1e5 is not a name
			for size < len(rest) && (isLetter(rest[size]) || isDigit(rest[size]) || rest[size] == '.') {
				size++
			}
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"), c == ';', c == '$', c == '#' && !strings.HasPrefix(rest, "#>"):
			return nil, fmt.Errorf("the expression %s must not contain comments, semicolons or $", expression)
		}
		if size == 0 {
			return nil, fmt.Errorf("the expression %s has a quote that isn't closed", expression)
		}
		list = append(list, token{text: rest[:size], name: name, bare: bare})
		rest = rest[size:]
	}
	return list, balanced(expression, list)
}

// balanced returns an error if the parentheses of the expression don't match, because an unmatched parenthesis could close a
// parenthesis of the statement that contains the expression.
func balanced(expression string, list []token) error {
	depth := 0
	for _, t := range list {
		switch t.text {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth < 0 {
			break
		}
	}
	if depth != 0 {
		return fmt.Errorf("the parentheses of the expression %s don't match", expression)
	}
	return nil
}

// quotedSize returns the size of the quoted text at the beginning of a text, or 0 if the closing quote is missing.
func quotedSize(text string, quote byte) int {
	for i := 1; i < len(text); i++ {
		if text[i] != quote {
			continue
		}
		if i+1 == len(text) || text[i+1] != quote {
			return i + 1
		}
		i++
	}
	return 0
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// qualified returns the expression with each column of the table quoted and preceded by a prefix such as "NEW.". A name is not a
// column if it follows a dot, a double colon or AS, or if a parenthesis or a dot follows it. First, the table's name is removed
// where it qualifies a column, as in events.id.
func (a *Adoption) qualified(expression, prefix string) (string, error) {
	list, err := tokens(expression)
	if err != nil {
		return "", err
	}
	for i := 0; i+2 < len(list); i++ {
		if strings.EqualFold(list[i].name, a.Table.Name) && list[i+1].text == "." {
			list = slices.Delete(list, i, i+2)
		}
	}
	var b strings.Builder
	last := "" // the last token that isn't a space
	for i, t := range list {
		column, found := a.named(t)
		if found && !slices.Contains([]string{".", ":", "AS"}, strings.ToUpper(last)) && !slices.Contains([]string{"(", "."}, following(list[i+1:])) {
			b.WriteString(prefix + a.base.quote(column))
		} else {
			b.WriteString(t.text)
		}
		if text := strings.TrimSpace(t.text); text != "" {
			last = text
		}
	}
	return b.String(), nil
}

// following returns the first token that isn't a space.
func following(list []token) string {
	for _, t := range list {
		if text := strings.TrimSpace(t.text); text != "" {
			return text
		}
	}
	return ""
}

// named returns the column that a token names. A name without quotes also matches a column in another case, unless several
// columns match.
func (a *Adoption) named(t token) (column string, found bool) {
	names := a.Table.names()
	if t.name == "" {
		return "", false
	}
	if slices.Contains(names, t.name) {
		return t.name, true
	}
	if !t.bare {
		return "", false
	}
	for _, name := range names {
		if strings.EqualFold(name, t.name) {
			if found {
				return "", false
			}
			column, found = name, true
		}
	}
	return column, found
}

// bareColumn returns the column if the expression consists of its name only.
func (a *Adoption) bareColumn(expression string) (Column, bool) {
	list, err := tokens(strings.TrimSpace(expression))
	if err != nil || len(list) != 1 {
		return Column{}, false
	}
	name, found := a.named(list[0])
	if !found {
		return Column{}, false
	}
	return a.Table.column(name)
}

// NotForwarded returns the columns whose values are not forwarded, except those that the mapping uses in Waiting or Published.
func (a *Adoption) NotForwarded() (left []string) {
	m := a.Mapping
	expressions := append([]string{m.Topic, m.Key, m.Payload, m.ID, m.Headers, m.Waiting}, m.Published...)
	for _, h := range m.Header {
		expressions = append(expressions, h.Value)
	}
	used := map[string]bool{}
	for _, expression := range expressions {
		list, _ := tokens(expression) // Valid returns the error
		for _, t := range list {
			column, _ := a.named(t)
			used[column] = true
		}
	}
	for _, name := range a.Table.names() {
		if !used[name] {
			left = append(left, name)
		}
	}
	return left
}

// assignment splits "column = expression".
func (a *Adoption) assignment(text string) (column, expression string, err error) {
	left, right, ok := strings.Cut(text, "=")
	c, found := a.bareColumn(left)
	if !ok || !found || strings.TrimSpace(right) == "" {
		return "", "", fmt.Errorf("published %q must have the form column = expression, with a column of %s, or be delete", text, a.Table.Name)
	}
	return c.Name, strings.TrimSpace(right), nil
}
