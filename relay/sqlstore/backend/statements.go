package backend

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Statements are the texts of a .sql file by their names. A text begins with a line
// "-- name: …" and ends at the next; other lines that begin with -- are comments. In
// braces it names a table, or a text above it, whose words stand in that place.
type Statements map[string]string

var (
	sections = regexp.MustCompile(`(?m)^-- name: (.+)$`)
	comments = regexp.MustCompile(`(?m)^\s*--.*\n?`)
	braces   = regexp.MustCompile(`\{[a-z][a-z0-9 _]*\}`)
)

// ParseStatements reads a file for one table. More are words that the file doesn't
// have itself. It panics if the file names something that there isn't: tests read
// each file.
func ParseStatements(file string, table dialect.Table, more map[string]string) Statements {
	words := map[string]string{
		"hot": table.Hot, "held": table.Held, "done": table.Done, "lanes": table.Lanes, "relays": table.Relays,
		"settings": table.Settings, "epoch": table.Epoch, "lane_locks": table.LaneLocks, "messages": table.Messages,
	}
	for name, text := range more {
		words[name] = text
	}
	statements := Statements{}
	names := sections.FindAllStringSubmatchIndex(file, -1)
	for i, at := range names {
		end := len(file)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		name := file[at[2]:at[3]]
		if _, twice := words[name]; twice {
			panic(fmt.Sprintf("there are two texts with the name %q", name))
		}
		text := strings.TrimSpace(comments.ReplaceAllString(file[at[1]:end], ""))
		text = braces.ReplaceAllStringFunc(text, func(brace string) string {
			word, known := words[brace[1:len(brace)-1]]
			if !known {
				panic(fmt.Sprintf("statement %q names %s, which there isn't", name, brace))
			}
			return word
		})
		statements[name], words[name] = text, text
	}
	return statements
}

// Query is a statement with its arguments.
func (s Statements) Query(name string, args ...any) Query {
	return Query{SQL: s.Text(name), Args: args}
}

// Text is that of one name, for a statement that has it as a part.
func (s Statements) Text(name string) string {
	text, known := s[name]
	if !known {
		panic(fmt.Sprintf("there is no statement %q", name))
	}
	return text
}

// Fill is a statement in whose text words, such as :limit, are numbers or lists of
// numbers: each word is followed by what stands in its place.
func (s Statements) Fill(name string, words []string, args ...any) Query {
	return Query{SQL: strings.NewReplacer(words...).Replace(s.Text(name)), Args: args}
}
