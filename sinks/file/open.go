package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// handle is an open file. Tests replace it with a handle that fails like a file on a
// full disk.
type handle interface {
	Write(text []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)

	// Lock prevents other processes from appending until Unlock is called or the
	// handle is closed.
	Lock(ctx context.Context) error
	Unlock() error

	// Current reports whether the path still refers to this file.
	Current() bool

	// Torn reports whether the last line has no newline.
	Torn() (bool, error)

	Close() error
}

// follow reopens the file if the path now refers to another file, as after a
// rotation, or to no file.
func (s *Sink) follow(ctx context.Context) error {
	if s.file != nil && s.file.Current() {
		return nil
	}
	return s.reopen(ctx)
}

func (s *Sink) reopen(ctx context.Context) error {
	_ = s.drop() // an error of Close loses no data, because the file isn't buffered
	opened, err := s.openFile(s.options)
	if err != nil {
		return err
	}
	s.file = opened
	if err := s.repair(ctx); err != nil {
		return errors.Join(err, s.drop())
	}
	return nil
}

func (s *Sink) drop() error {
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	if err := file.Close(); err != nil {
		return fmt.Errorf("close the file: %w", err)
	}
	return nil
}

// unlock unlocks the file. If that fails, it closes the file, which releases the
// lock.
func (s *Sink) unlock() {
	if s.file != nil && s.file.Unlock() != nil {
		_ = s.drop()
	}
}

// repair adds a newline to the last line if a crash or a full disk left it without one.
func (s *Sink) repair(ctx context.Context) error {
	if err := s.file.Lock(ctx); err != nil {
		return err
	}
	torn, err := s.file.Torn()
	if err == nil && torn {
		_, err = s.file.Write([]byte("\n"))
	}
	if err != nil {
		err = fmt.Errorf("add a newline to an incomplete last line: %w", err)
	}
	return errors.Join(err, s.file.Unlock())
}

// osFile is the handle of a real file.
type osFile struct {
	*os.File
	path string
}

const flags = os.O_RDWR | os.O_APPEND

// openExisting opens a file that exists.
func openExisting(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a pipe could block
		return nil, fmt.Errorf("open %s: it is not a regular file; for a pipe or a terminal use the stdout sink", path)
	}
	return os.OpenFile(path, flags, 0)
}

// openFile opens or creates the file. Unless NoSync is set, it syncs the folder of a new
// file, so that the file survives a power cut.
func openFile(options Options) (handle, error) {
	opened, err := openExisting(options.Path)
	if err == nil {
		return &osFile{opened, options.Path}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	created, err := os.OpenFile(options.Path, flags|os.O_CREATE, options.Mode)
	if err != nil {
		return nil, fmt.Errorf("create the file (does its folder exist?): %w", err)
	}
	err = created.Chmod(options.Mode)
	if err == nil && !options.NoSync {
		err = syncFolder(filepath.Dir(options.Path))
	}
	if err != nil {
		return nil, errors.Join(err, created.Close())
	}
	return &osFile{created, options.Path}, nil
}

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Current() bool {
	there, err := os.Stat(f.path)
	if err != nil {
		return false
	}
	mine, err := f.Stat()
	return err == nil && os.SameFile(there, mine)
}

func (f *osFile) Torn() (bool, error) {
	size, err := f.Size()
	if err != nil || size == 0 {
		return false, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil {
		return false, fmt.Errorf("read the end of the file: %w", err)
	}
	return last[0] != '\n', nil
}
