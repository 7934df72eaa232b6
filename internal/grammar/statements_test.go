package grammar

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

const root = "../.."

// statement is an SQL statement, a PL/SQL block or, for SQL Server, a batch.
type statement struct {
	where string // the file, and the heading in it
	sql   string
}

// statements returns all statements of a database: those of the store's and the dialect's golden files, and the migrations.
func statements(t *testing.T, d dialect.Dialect, split func(string) []string) (all []statement) {
	t.Helper()
	for _, file := range []string{"relay/sqlstore/" + d.Name() + "/testdata/statements.sql", "outbox/dialect/testdata/" + d.Name() + ".sql"} {
		for _, section := range strings.Split(read(t, file), "\n\n-- ") {
			heading, body, _ := strings.Cut(strings.TrimPrefix(section, "-- "), "\n")
			for _, sql := range split(arguments.ReplaceAllString(body, "")) {
				all = append(all, statement{file + ": " + heading, sql})
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "relay/sqlstore", d.Name(), "migrations/*/*.sql"))
	check(t, err)
	if len(files) < 3 {
		t.Fatalf("%d migrations of %s, want at least 3", len(files), d.Name())
	}
	for _, file := range files {
		file = strings.TrimPrefix(file, root+"/")
		for _, sql := range split(rendered(t, file)) {
			all = append(all, statement{file, sql})
		}
	}
	return all
}

var (
	arguments = regexp.MustCompile(`(?m)^--( {3}\d+: .*| of the dialect, .*)\n?`)
	notes     = regexp.MustCompile(`(?m)^ *--.*\n?`)
	blockEnds = regexp.MustCompile(`(?m)^-- \+goose StatementEnd$`)
)

// rendered returns a migration for the table app.Events, with all its steps. Each block ends with a slash on a line.
func rendered(t *testing.T, file string) string {
	t.Helper()
	name := "app.Events"
	if strings.Contains(file, "/inbox/") {
		name = "app.Received"
	}
	table, err := dialect.ParseTable(name)
	check(t, err)
	parsed, err := template.New(file).Parse(blockEnds.ReplaceAllString(read(t, file), "/"))
	check(t, err)
	var text bytes.Buffer
	check(t, parsed.Execute(&text, table))
	return notes.ReplaceAllString(text.String(), "")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	check(t, err)
	return string(text)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var inside = regexp.MustCompile(`(?s)EXEC \(N'((?:[^']|'')*)'\)`)

// splitSQLServer returns the whole script, because the server receives a batch, and the scripts within its strings.
func splitSQLServer(script string) (all []string) {
	if strings.TrimSpace(script) == "" {
		return nil
	}
	for _, found := range inside.FindAllStringSubmatch(script, -1) {
		all = append(all, strings.ReplaceAll(found[1], "''", "'"))
	}
	return append(all, script)
}

// broken returns the statement without its last closing parenthesis, or with one if it has none.
func broken(sql string) string {
	if i := strings.LastIndex(sql, ")"); i >= 0 {
		return sql[:i] + sql[i+1:]
	}
	return strings.TrimRight(sql, "; \n") + ")"
}
