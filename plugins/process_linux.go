package plugins

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// canLimitMemory is true on systems on which the memory of a plug-in can be
// measured.
const canLimitMemory = true

// socketPathLimit is the longest path of a Unix socket in bytes (sun_path without its final
// NUL).
const socketPathLimit = 107

// isolate gives the plug-in its own process group, so that the whole group can be killed. It also
// makes the kernel kill the plug-in when the thread that started the plug-in ends.
func isolate(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills the plug-in and all other processes of its group.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// sacrifice makes the kernel kill the plug-in rather than the relay when memory runs out. It
// ignores errors, because the plug-in may already have exited.
func sacrifice(pid int) {
	_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), []byte("1000"), 0)
}

// used returns the memory that the processes of a group have in use, in bytes, without
// swapped-out memory.
func used(group int) int64 {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var pages int64
	for _, path := range stats {
		pages += residentPages(path, group)
	}
	return pages * int64(os.Getpagesize())
}

// residentPages returns the memory of a process in pages, or 0 if the process is not in the
// group or has exited.
func residentPages(path string, group int) int64 {
	const pgrp, rss = 2, 21 // indexes of fields after the program's name, which is in parentheses
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= rss || fields[pgrp] != strconv.Itoa(group) {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[rss], 10, 64)
	return pages
}

// lockFile creates a file and locks it until it is closed. The kernel releases the lock when
// the relay is killed.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// sweep removes the private directories ([home]) of relays that no longer run, and kills the
// processes that their plug-ins left running.
func sweep(directory string) {
	homes, _ := filepath.Glob(filepath.Join(directory, homePrefix+"*"))
	for _, path := range homes {
		if !ours(path) {
			continue
		}
		if lock, err := lockFile(filepath.Join(path, lockName)); err == nil {
			killInhabitants(&home{path: path})
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

// killInhabitants kills the processes whose environment contains this home's path. It can't read
// the environment of other users' processes.
func killInhabitants(of *home) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		text, _ := os.ReadFile(path)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && slices.Contains(strings.Split(string(text), "\x00"), of.variable()) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// ours reports whether a home belongs to this user and is older than a minute. A younger home may
// belong to a relay that hasn't locked it yet.
func ours(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || time.Since(info.ModTime()) < time.Minute {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
