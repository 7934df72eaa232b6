//go:build !linux

package plugins

import (
	"os"
	"os/exec"
)

const canLimitMemory = false

// socketPathLimit is the longest path of a Unix socket in bytes. This is the limit of macOS and the BSDs, which is
// the lowest of all systems.
const socketPathLimit = 103

// isolate does nothing: when the relay ends, the plug-in's standard input ends, and then the
// plug-in exits.
func isolate(*exec.Cmd) {}

func killGroup(pid int) {
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill()
	}
}

func sacrifice(int) {}

func used(int) int64 { return 0 }

func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// sweep does nothing: the system cleans its temporary directory.
func sweep(string) {}
