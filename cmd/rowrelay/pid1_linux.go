package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// runAsInit runs the command line in a child process if this is process 1, as in a
// container. Process 1 must reap every orphan, such as the children of plug-ins. runAsInit
// forwards signals to its child and returns the child's exit code. ok is false if this is
// not process 1 or no child could be started.
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
			if s != syscall.SIGCHLD && s != syscall.SIGURG { // the Go runtime sends SIGURG to its own process
				_ = child.Process.Signal(s)
			}
		}
	}()
	return reapUntil(child.Process.Pid), true
}

// reapUntil reaps processes until the process pid has ended, and returns the exit code of
// that process. If a signal ended the process, the code is 128 plus the signal's number, as
// in shells.
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
