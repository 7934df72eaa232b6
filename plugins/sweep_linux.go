package plugins

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockFile makes a file and locks it as long as it is open: the kernel lets go of
// it when the relay is killed.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// sweep removes the homes of relays that are gone.
func sweep(directory string) {
	homes, _ := filepath.Glob(filepath.Join(directory, homePrefix+"*"))
	for _, path := range homes {
		if !ours(path) {
			continue
		}
		if lock, err := lockFile(filepath.Join(path, lockName)); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

// ours says that a home is this user's, and not just being made.
func ours(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || time.Since(info.ModTime()) < time.Minute {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
