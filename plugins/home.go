package plugins

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	goplugin "github.com/hashicorp/go-plugin"
)

// home is the private directory of one process of a plug-in. It contains the socket and, if a
// checksum is configured, a copy of the program.
type home struct {
	path string
	lock *os.File // held while the relay runs
}

const (
	homePrefix = "rowrelay-plugin-"
	lockName   = ".lock"

	// longestSocket is the maximum length of a socket's path after the directory: the home's name
	// with up to ten digits, and "/plugin" with up to ten digits, as go-plugin names sockets.
	longestSocket = len("/"+homePrefix+"4294967295") + len("/plugin4294967295")
)

// newHome makes a home. On Linux, it also removes the homes that killed relays left behind.
func newHome(directory string) (*home, error) {
	if place := cmp.Or(directory, os.TempDir()); len(place)+longestSocket > socketPathLimit {
		return nil, config("the path of the directory %s has %d bytes, but a plug-in's Unix socket allows at most %d: set directory to a shorter path",
			place, len(place), socketPathLimit-longestSocket)
	}
	sweep(directory)
	path, err := os.MkdirTemp(directory, homePrefix)
	if err != nil {
		return nil, config("make a private directory for the plug-in: %v; set directory to a writable directory", err)
	}
	lock, err := lockFile(filepath.Join(path, lockName))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &home{path: path, lock: lock}, nil
}

// variable returns the environment variable that contains the directory for the plug-in's socket.
// Processes that the plug-in starts inherit the variable, which shows that they belong to this home.
func (h *home) variable() string { return goplugin.EnvUnixSocketDir + "=" + h.path }

func (h *home) remove() {
	if h == nil {
		return
	}
	_ = os.RemoveAll(h.path)
	_ = h.lock.Close()
}

// checkedCopy copies a program into the home. If the copy has the wanted checksum, checkedCopy
// returns its path. A user who can write to the original can't change the copy.
func (h *home) checkedCopy(program, want string) (string, error) {
	path := filepath.Join(h.path, filepath.Base(program))
	// Start no other program while the copy is open for writing: the new process would inherit the open file until it
	// calls exec, and the kernel refuses to run a file that is open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	target, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	got := ""
	if err == nil {
		got, err = copyTo(target, program)
		err = errors.Join(err, target.Close())
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("copy the plug-in's program: %w", err)
	case got != strings.ToLower(want):
		return "", config("%s has the SHA-256 checksum %s, not the configured %s: the program was replaced, or sha256 belongs to another version", program, got, strings.ToLower(want))
	}
	return path, nil
}

// copyTo copies a file to a writer and returns its checksum.
func copyTo(target io.Writer, path string) (sum string, err error) {
	source, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = source.Close() }()
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(target, hash), source)
	return hex.EncodeToString(hash.Sum(nil)), err
}
