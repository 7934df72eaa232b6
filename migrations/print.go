package migrations

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// noTransaction marks a step that can't run in a transaction.
const noTransaction = "-- +goose NO TRANSACTION\n"

// Print writes the SQL of all steps to w, ready to be run. Each step is a transaction if the
// database can roll back DDL. The statements that roll a step back are in comments before the
// step, because tools that split at semicolons would treat a comment at the end as an empty
// statement.
func (m *Migrations) Print(w io.Writer) error { return m.PrintAfter(w, 0) }

// PrintAfter writes the SQL of the steps after the given version, for tables that already have
// this version. It also writes the statements for Options.Claim and Options.Notify. It returns an
// error if this release has no such version.
func (m *Migrations) PrintAfter(w io.Writer, version int64) error {
	if err := m.notMade(); err != nil {
		return err
	}
	pending, err := m.after(version)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, step := range pending {
		up, down := split(step.sql)
		if step.version == 1 {
			up = sqlOf(m.makeSchema(), unmarked) + up
		}
		if bare, found := strings.CutPrefix(up, noTransaction); found {
			up = m.script(bare)
		} else {
			up = m.schema.Begin + "\n\n" + up + "\n\nCOMMIT;"
		}
		fmt.Fprintf(&text, "-- %s\n\n-- To roll it back, which deletes all of its data:\n--\n%s\n\n%s\n\n", step.name, commented(down), up)
	}
	if m.options.Claim == "rows" {
		text.WriteString("-- Indexes for claiming by rows:\n\n")
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
		fmt.Fprintf(&text, "\n-- A trigger by which plain INSERTs notify listening relays.\n\n-- To drop it:\n--\n-- %s;\n\n%s;\n\n%s;\n", m.notify.drop, m.notify.function, m.notify.trigger)
	case "off":
		fmt.Fprintf(&text, "\n-- Plain INSERTs no longer notify relays:\n\n%s;\n", m.notify.drop)
	}
	_, err = io.WriteString(w, text.String())
	return err
}

// after returns the steps after a version.
func (m *Migrations) after(version int64) ([]step, error) {
	if newest := m.steps[len(m.steps)-1].version; version < 0 || version > newest {
		return nil, fmt.Errorf("print the steps after version %d of table %s: this release has the versions 1 to %d (0 means that no table exists yet)", version, m.table, newest)
	}
	return slices.DeleteFunc(slices.Clone(m.steps), func(s step) bool { return s.version <= version }), nil
}

// script ends each block with a line that has only a slash, because tools that split at
// semicolons need this line. On databases that commit only DDL automatically, it adds a COMMIT
// for the INSERTs.
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
