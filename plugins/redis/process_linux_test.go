package main

import "syscall"

// endWithTest has the kernel kill a server whose test program dies.
func endWithTest() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
