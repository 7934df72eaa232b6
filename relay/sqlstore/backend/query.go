package backend

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Query is one statement and its arguments.
type Query = dialect.Query

// Querier is a *sql.DB or a *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Each calls take for every row; take scans it, and may stop by returning
// false.
func Each(ctx context.Context, q Querier, query Query, take func(*sql.Rows) (more bool, err error)) error {
	rows, err := q.QueryContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for more := true; more && rows.Next(); {
		if more, err = take(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// All scans every row with the same destinations, and then calls took.
func All(ctx context.Context, q Querier, query Query, took func(), destinations ...any) error {
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		took()
		return true, nil
	})
}

// One scans the only row, if there is one: else the destinations stay as they are.
func One(ctx context.Context, q Querier, query Query, destinations ...any) error {
	return All(ctx, q, query, func() {}, destinations...)
}

// IDs returns the first and only column of each row.
func IDs(ctx context.Context, q Querier, query Query) (ids []int64, err error) {
	var id number
	err = All(ctx, q, query, func() { ids = append(ids, int64(id)) }, &id)
	return ids, err
}

// Any says whether there is a row. It reads no further than the first.
func Any(ctx context.Context, q Querier, query Query) (found bool, err error) {
	err = Each(ctx, q, query, func(*sql.Rows) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// Lines returns the rows of an answer as text, with blanks between columns.
func Lines(ctx context.Context, q Querier, query Query) (lines []string, err error) {
	err = Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		names, err := rows.Columns()
		if err != nil {
			return false, err
		}
		values := make([]sql.NullString, len(names))
		destinations := make([]any, len(names))
		for i := range values {
			destinations[i] = &values[i]
		}
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		words := make([]string, len(values))
		for i, value := range values {
			words[i] = value.String
		}
		lines = append(lines, strings.Join(words, " "))
		return true, nil
	})
	return lines, err
}

// Exec runs one statement after the other, and counts the rows of the last one.
func Exec(ctx context.Context, q Querier, queries ...Query) (affected int, err error) {
	for _, query := range queries {
		result, err := q.ExecContext(ctx, query.SQL, query.Args...)
		if err != nil {
			return 0, err
		}
		count, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		affected = int(count)
	}
	return affected, nil
}

// InTx runs work in a transaction, which is rolled back if work fails.
func InTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// ExecTx runs statements as a transaction, and counts the rows of the last one.
func ExecTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, queries ...Query) (affected int, err error) {
	err = InTx(ctx, db, options, func(tx *sql.Tx) error {
		affected, err = Exec(ctx, tx, queries...)
		return err
	})
	return affected, err
}

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
