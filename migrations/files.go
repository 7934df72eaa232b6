package migrations

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"text/template"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed postgres/*.sql mysql/*.sql oracle/*.sql sqlite/*.sql sqlserver/*.sql inbox/*/*.sql
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
	bare, err := dialect.ParseTable(table.Name)
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
	steps := make([]step, len(entries))
	for i, entry := range entries {
		file := entry.Name()
		number, _, _ := strings.Cut(file, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the version of migration %s: %w", file, err)
		}
		parsed, err := template.ParseFS(files, folder+"/"+file)
		if err != nil {
			return nil, fmt.Errorf("parse migration %s: %w", file, err)
		}
		var text strings.Builder
		if err := parsed.Execute(&text, names{table, bare}); err != nil {
			return nil, fmt.Errorf("render migration %s: %w", file, err)
		}
		steps[i] = step{version: version, name: file, sql: text.String()}
	}
	return steps, nil
}

// stepFiles shows rendered steps to goose as files in one folder.
type stepFiles []step

func (files stepFiles) Open(name string) (fs.File, error) {
	for _, step := range files {
		if step.name == name {
			return stepFile{strings.NewReader(step.sql)}, nil
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (files stepFiles) Glob(pattern string) ([]string, error) {
	var found []string
	for _, step := range files {
		if ok, _ := path.Match(pattern, step.name); ok {
			found = append(found, step.name)
		}
	}
	return found, nil
}

// stepFile has no more than goose asks for: it reads a file and closes it.
type stepFile struct{ *strings.Reader }

func (stepFile) Stat() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }
func (stepFile) Close() error               { return nil }
