package plugintest

import "syscall"

// endWithTest makes the kernel kill a relay when its test program dies.
func endWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
