package migrations

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"text/template"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// step is a migration file, rendered with the table's names.
type step struct {
	version int64
	name    string
	sql     string
}

// names holds the values that the templates in the files may use: the table's names and,
// in the field Bare, the same names without the schema.
type names struct {
	dialect.Table
	Bare dialect.Table
}

// The folders that contain the files of the outbox and of the inbox.
const (
	outboxSet = "outbox"
	inboxSet  = "inbox"
)

// render renders the files of a set with the table's names, which are quoted if necessary.
func render(set string, schema backend.Schema, table dialect.Table) ([]step, error) {
	folder := path.Join("migrations", set)
	bare, err := dialect.ParseTable(table.Name)
	if err != nil {
		return nil, err
	}
	if schema.Quoted != nil {
		bare = schema.Quoted(bare)
	}
	entries, err := fs.ReadDir(schema.Files, folder)
	if err != nil {
		return nil, fmt.Errorf("read the migrations in %s: %w", folder, err)
	}
	steps := make([]step, len(entries))
	for i, entry := range entries {
		file := entry.Name()
		number, _, _ := strings.Cut(file, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the version of migration %s: %w", file, err)
		}
		parsed, err := template.ParseFS(schema.Files, folder+"/"+file)
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

// stepFiles is a file system for goose: one folder with the rendered steps as files.
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

// stepFile supports only the operations that goose needs: reading and closing.
type stepFile struct{ *strings.Reader }

func (stepFile) Stat() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }
func (stepFile) Close() error               { return nil }
