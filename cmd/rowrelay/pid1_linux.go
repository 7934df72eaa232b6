package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// runAsInit runs the command line in a child process while this process does what the
// kernel expects of process 1: it reaps every orphan, such as those that plug-ins leave
// behind. Signals are passed on. It returns the child's exit code, or ok false where
// this is not process 1 or no child could be started.
func runAsInit() (code int, ok bool) {
	if os.Getpid() != 1 {
		return 0, false
	}
	program, err := os.Executable()
	if err != nil {
		return 0, false
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	child := exec.Command(program, os.Args[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		signal.Reset()
		return 0, false
	}
	go func() {
		for s := range signals {
			if s != syscall.SIGCHLD && s != syscall.SIGURG { // of which the second is the Go runtime's own
				_ = child.Process.Signal(s)
			}
		}
	}()
	return reapUntil(child.Process.Pid), true
}

// reapUntil reaps processes until the one with this number has ended, and returns its exit
// code: 128 and the signal's number if a signal ended it, as shells have it.
func reapUntil(pid int) int {
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return exitFailed
		case ended != pid:
		case status.Signaled():
			return 128 + int(status.Signal())
		case status.Exited():
			return status.ExitStatus()
		}
	}
}
