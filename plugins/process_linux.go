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

// canLimitMemory says that used works.
const canLimitMemory = true

// socketPathLimit is how many bytes the path of a Unix socket may have (sun_path, less its
// final NUL).
const socketPathLimit = 107

// isolate gives the plug-in a process group of its own, which is killed whole,
// and lets the kernel kill it when the thread that has started it ends.
func isolate(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killGroup kills the plug-in, and what it has started.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// sacrifice lets the kernel, when it runs out of memory, kill the plug-in rather
// than the relay. A plug-in that has ended already needs nothing of that.
func sacrifice(pid int) {
	_ = os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj"), []byte("1000"), 0)
}

// used returns how many bytes of memory the processes of a group have in use,
// those that are swapped out not counted.
func used(group int) int64 {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var pages int64
	for _, path := range stats {
		pages += residentPages(path, group)
	}
	return pages * int64(os.Getpagesize())
}

// residentPages reads the memory of a process of the group; that of others, or
// of one that has ended meanwhile, is none.
func residentPages(path string, group int) int64 {
	const pgrp, rss = 2, 21 // places after the program's name, which is in parentheses
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

// lockFile makes a file and locks it as long as it is open: the kernel lets go of
// it when the relay is killed.
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

// sweep removes the homes of relays that are gone, and kills what their plug-ins have left
// running.
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

// killInhabitants kills the processes whose environment names this home. Of processes of other
// users the environment can't be read.
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

// ours says that a home is this user's, and not just being made.
func ours(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 || time.Since(info.ModTime()) < time.Minute {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
