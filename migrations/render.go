package migrations

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"text/template"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed postgres/*.sql mysql/*.sql oracle/*.sql sqlite/*.sql sqlserver/*.sql tidb/*.sql inbox/*/*.sql
var files embed.FS

// step is a migration's file with the table's names put in.
type step struct {
	version int64
	name    string
	sql     string
}

// names is what the files may use: a table's names, and Bare, the names without the
// schema.
type names struct {
	dialect.Table
	Bare dialect.Table
}

// folders are those of dialects that share one with others.
var folders = map[string]string{"mariadb": "mysql"}

// render takes the files of an outbox, or of an inbox, for the dialect of that
// name.
func render(set, name string, table dialect.Table) ([]step, error) {
	folder := path.Join(set, cmp.Or(folders[name], name))
	bare, err := dialect.ParseTable(table.Name())
	if err != nil {
		return nil, err
	}
	if isMySQL(name) {
		bare, table = bare.Backquoted(), table.Backquoted()
	}
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, fmt.Errorf("there are no migrations for %s: %w", folder, err)
	}
	steps := make([]step, 0, len(entries))
	for _, entry := range entries {
		step, err := renderFile(folder, entry.Name(), names{table, bare})
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func renderFile(folder, name string, names names) (step, error) {
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return step{}, fmt.Errorf("read the version of migration %s: %w", name, err)
	}
	parsed, err := template.ParseFS(files, folder+"/"+name)
	if err != nil {
		return step{}, fmt.Errorf("parse migration %s: %w", name, err)
	}
	var text strings.Builder
	if err := parsed.Execute(&text, names); err != nil {
		return step{}, fmt.Errorf("render migration %s: %w", name, err)
	}
	return step{version: version, name: name, sql: text.String()}, nil
}
