//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// outputGone reports whether stdout or stderr has lost its reader.
func outputGone() bool {
	files := []unix.PollFd{{Fd: int32(os.Stdout.Fd())}, {Fd: int32(os.Stderr.Fd())}}
	n, err := unix.Poll(files, 0)
	if err != nil || n == 0 {
		return false
	}
	return (files[0].Revents|files[1].Revents)&(unix.POLLERR|unix.POLLHUP) != 0
}
