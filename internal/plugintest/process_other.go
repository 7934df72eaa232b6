//go:build !linux

package plugintest

import "syscall"

func endWithTest() *syscall.SysProcAttr { return nil }
