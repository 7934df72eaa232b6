package migrations

import (
	"fmt"
	"io"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// noTransaction marks a step whose statements can't be in one.
const noTransaction = "-- +goose NO TRANSACTION\n"

// Print writes the SQL of all steps, ready to be run as it is: each step is a
// transaction, where the database can. The way back stands before it as comments, as to tools
// that split at semicolons a comment at the end would be an empty statement.
func (m *Migrations) Print(w io.Writer) error { return m.PrintAfter(w, 0) }

// PrintAfter is Print for tables of a version, whose step was run before: it leaves out that step
// and those before it. Where no step is left, it writes what Options ask for beside the steps, or
// nothing. It is an error if this release knows no such version.
func (m *Migrations) PrintAfter(w io.Writer, version int64) error {
	if err := m.notMade(); err != nil {
		return err
	}
	if newest := m.steps[len(m.steps)-1].version; version < 0 || version > newest {
		return fmt.Errorf("print the steps after version %d of table %s: this release knows the versions 1 to %d (0 for no table yet)", version, m.table, newest)
	}
	var text strings.Builder
	for _, step := range m.steps {
		if step.version <= version {
			continue
		}
		up, down := split(step.sql)
		if bare, found := strings.CutPrefix(up, noTransaction); found {
			up = m.script(bare)
		} else {
			up = m.schema.Begin + "\n\n" + up + "\n\nCOMMIT;"
		}
		fmt.Fprintf(&text, "-- %s\n\n-- To take it back, with all that is in it:\n--\n%s\n\n%s\n\n", step.name, commented(down), up)
	}
	if m.options.Claim == "rows" {
		text.WriteString("-- For claiming by rows:\n\n")
		for _, query := range m.dialect.MakeRowIndexes(m.table) {
			end := ";"
			if strings.HasSuffix(query.SQL, "END;") {
				end = "\n/"
			}
			text.WriteString(query.SQL + end + "\n")
		}
	}
	switch m.options.Notify {
	case "on":
		fmt.Fprintf(&text, "\n-- Plain INSERTs tell listening relays.\n\n-- To take it back:\n--\n-- %s;\n\n%s;\n\n%s;\n", m.notify.drop, m.notify.function, m.notify.trigger)
	case "off":
		fmt.Fprintf(&text, "\n-- Plain INSERTs don't tell relays any more:\n\n%s;\n", m.notify.drop)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// script marks each block, as tools want it that take semicolons for the ends of
// statements, and commits what doesn't commit itself.
func (m *Migrations) script(sql string) string {
	sql = strings.ReplaceAll(strings.TrimSpace(sql), statementBegin+"\n", "")
	sql = strings.ReplaceAll(sql, statementEnd, "/")
	if _, ok := m.dialect.(dialect.Repeating); ok {
		sql += "\n\nCOMMIT;"
	}
	return sql
}

func split(sql string) (up, down string) {
	up, down, _ = strings.Cut(sql, "-- +goose Down")
	return strings.TrimSpace(strings.Replace(up, "-- +goose Up", "", 1)), strings.TrimSpace(down)
}

func commented(sql string) string {
	var lines []string
	for line := range strings.Lines(sql) {
		lines = append(lines, strings.TrimSpace("-- "+line))
	}
	return strings.Join(lines, "\n")
}
