package plugins

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// canLimitMemory says that used works.
const canLimitMemory = true

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
