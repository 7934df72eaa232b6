package plugintest

import "syscall"

// endWithTest has the kernel kill a relay whose test program dies.
func endWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
