package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The lines in goose's files around a statement that contains semicolons.
const (
	statementBegin = "-- +goose StatementBegin"
	statementEnd   = "-- +goose StatementEnd"
)

// repeated returns the steps for a database that commits each DDL statement. It doesn't use goose's parser, which leaves the
// semicolon at the end of a statement, because Oracle refuses this semicolon. A step ignores errors about objects that it has
// already created or dropped, because goose runs the step again after a failure.
func (m *Migrations) repeated(done dialect.Repeating) []*goose.Migration {
	all := make([]*goose.Migration, len(m.steps))
	for i, step := range m.steps {
		up, down := split(step.sql)
		all[i] = goose.NewGoMigration(step.version,
			&goose.GoFunc{RunTx: runStatements(up, done.Made)},
			&goose.GoFunc{RunTx: runStatements(down, done.Gone)})
	}
	return all
}

func runStatements(script string, done func(error) bool) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, statement := range statements(script) {
			if _, err := tx.ExecContext(ctx, statement); err != nil && !done(err) {
				first, _, _ := strings.Cut(statement, "\n")
				return fmt.Errorf("%s …: %w", first, err)
			}
		}
		return nil
	}
}

// statements splits a script into statements. It removes comment lines and the semicolon
// after a statement, but not the semicolons within a marked block.
func statements(script string) (found []string) {
	var lines []string
	block := false
	end := func() {
		if len(lines) > 0 {
			found = append(found, strings.Join(lines, "\n"))
		}
		lines = nil
	}
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, " \t\r\n")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == statementBegin:
			block = true
		case trimmed == statementEnd:
			block = false
			end()
		case trimmed == "" || strings.HasPrefix(trimmed, "--"):
		case !block && strings.HasSuffix(line, ";"):
			lines = append(lines, strings.TrimSuffix(line, ";"))
			end()
		default:
			lines = append(lines, line)
		}
	}
	end()
	return found
}
