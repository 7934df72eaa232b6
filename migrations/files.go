package migrations

import (
	"io/fs"
	"path"
	"strings"
	"time"
)

// stepFiles shows rendered steps to goose as files in one folder.
type stepFiles []step

func (files stepFiles) Open(name string) (fs.File, error) {
	for _, step := range files {
		if step.name == name {
			return &stepFile{Reader: strings.NewReader(step.sql), step: step}, nil
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (files stepFiles) Stat(name string) (fs.FileInfo, error) {
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	return file.Stat()
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

type stepFile struct {
	*strings.Reader
	step step
}

func (f *stepFile) Stat() (fs.FileInfo, error) { return stepInfo{f.step}, nil }
func (f *stepFile) Close() error               { return nil }

type stepInfo struct{ step step }

func (i stepInfo) Name() string       { return i.step.name }
func (i stepInfo) Size() int64        { return int64(len(i.step.sql)) }
func (i stepInfo) Mode() fs.FileMode  { return 0o444 }
func (i stepInfo) ModTime() time.Time { return time.Time{} }
func (i stepInfo) IsDir() bool        { return false }
func (i stepInfo) Sys() any           { return nil }
