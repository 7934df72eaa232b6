//go:build !linux

package plugins

import (
	"os"
	"os/exec"
)

const canLimitMemory = false

// socketPathLimit is how many bytes the path of a Unix socket may have: on macOS and the BSDs,
// whose limit is the lowest.
const socketPathLimit = 103

// isolate has nothing to ask for: the plug-in notices that the relay is gone by
// the end of its standard input.
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

// sweep leaves to the system what killed relays have left in its directory for
// temporary files.
func sweep(string) {}
