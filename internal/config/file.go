package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/rowrelay/rowrelay/sinks"
)

const (
	maxFile   = 1 << 20  // bytes of a configuration
	maxSecret = 64 << 10 // bytes of a secret's file
)

// readLimited reads a regular file of at most so many bytes.
func readLimited(name string, most int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("can't be read: %s is a folder", name)
	}
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	if int64(len(content)) > most {
		return nil, fmt.Errorf("is too long: %s has more than %d bytes", name, most)
	}
	return content, nil
}

// Load reads a configuration from a file. kinds are the sinks that there are.
// The error is a [*Problems] if the content can't be used, and it matches
// [fs.ErrNotExist] if there is no such file.
func Load(name string, kinds *sinks.Registry) (Config, error) {
	content, err := readLimited(name, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("read the configuration %s: %w (name another with --config)", name, fs.ErrNotExist)
	}
	if err != nil {
		return Config{}, fmt.Errorf("the configuration %w", err)
	}
	return Parse(name, content, kinds)
}
