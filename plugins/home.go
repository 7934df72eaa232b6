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

// home is the private directory of one life of a plug-in: it has the socket, and
// the copy of a program that was checked.
type home struct {
	path string
	lock *os.File // held while the relay lives
}

const (
	homePrefix = "rowrelay-plugin-"
	lockName   = ".lock"

	// longestSocket is how many bytes a socket's path has beyond the directory's: the home's name
	// with up to ten digits, and "/plugin" with up to ten digits, as go-plugin names a socket.
	longestSocket = len("/"+homePrefix+"4294967295") + len("/plugin4294967295")
)

// newHome makes a home, and clears away those that killed relays have left.
func newHome(directory string) (*home, error) {
	if place := cmp.Or(directory, os.TempDir()); len(place)+longestSocket > socketPathLimit {
		return nil, config("the directory %s has a path of %d bytes, and a plug-in's Unix socket in it needs one of at most %d: set directory to a shorter path",
			place, len(place), socketPathLimit-longestSocket)
	}
	sweep(directory)
	path, err := os.MkdirTemp(directory, homePrefix)
	if err != nil {
		return nil, config("make a private directory for the plug-in: %v; the setting directory names another place", err)
	}
	lock, err := lockFile(filepath.Join(path, lockName))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &home{path: path, lock: lock}, nil
}

// variable is the one by which a plug-in learns where its socket belongs. Processes that the
// plug-in starts inherit it, and so show which home they belong to.
func (h *home) variable() string { return goplugin.EnvUnixSocketDir + "=" + h.path }

func (h *home) remove() {
	if h == nil {
		return
	}
	_ = os.RemoveAll(h.path)
	_ = h.lock.Close()
}

// checkedCopy copies a program into the home, and returns the path of the copy
// if it has the checksum. What has been checked can't be changed any more by
// whoever may write the original.
func (h *home) checkedCopy(program, want string) (string, error) {
	path := filepath.Join(h.path, filepath.Base(program))
	// No other program may be started while the file is open for writing: it
	// would inherit it until its exec, and nobody can run a file that is open so.
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
		return "", config("%s has the SHA-256 checksum %s, not the configured %s: it was replaced, or sha256 is that of another version", program, got, strings.ToLower(want))
	}
	return path, nil
}

// copyTo writes a file's bytes to a writer, and returns their checksum.
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
