//go:build unix

package config

import (
	"os/exec"
	"syscall"
)

// killable gives the program its own process group. When the program's context ends, the whole group is killed.
func killable(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
