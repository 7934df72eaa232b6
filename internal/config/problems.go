package config

import (
	"fmt"
	"sort"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Line, Column int    // where in the file, from 1; 0 if the place isn't known
	Path         string // the setting, such as sources.orders.lease
	Text         string // what is wrong and what to do; never a secret
}

// String returns the problem in one line, without the file's name.
func (p Problem) String() string {
	text := p.Text
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Line == 0 {
		return text
	}
	return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, text)
}

// Problems is the error of a configuration that can't be used: everything that
// is wrong with it, in the order of the file.
type Problems struct {
	File string
	List []Problem
}

// Error returns one line a problem, each with the file, line and column.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = p.File + ":" + problem.String()
		if problem.Line == 0 {
			lines[i] = p.File + ": " + problem.String()
		}
	}
	return strings.Join(lines, "\n")
}

func (p *Problems) sort() {
	sort.SliceStable(p.List, func(i, j int) bool {
		a, b := p.List[i], p.List[j]
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
}
