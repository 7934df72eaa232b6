package relay

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Back at once. A relay that dies holds its lanes until its leases end. Two things prove sooner that it
// is dead: that another begins with the name which an operator gave it; and, of relays without
// such a name, that their process is no more. For this their names tell the process: the host, the number
// of the process, when it began, and of which boot and which space of processes (containers have one
// each) the number is. What is concluded wrongly costs duplicates and nothing else: who lives is fenced.

// process tells one process of all there are on a host, since it was booted.
type process struct {
	host  string
	pid   int
	began string // in ticks since the boot; empty where the system doesn't tell
	space string // of the boot and the numbers of processes; empty where the system doesn't tell
}

// thisProcess is the one that runs.
func thisProcess() process {
	p := process{host: "unknown", pid: os.Getpid()}
	if host, err := os.Hostname(); err == nil {
		p.host = host
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	numbers, err2 := os.Readlink("/proc/self/ns/pid")
	if began := beginning(p.pid); err == nil && err2 == nil && began != "" {
		hash := sha256.Sum256(append(boot, numbers...))
		p.began, p.space = began, fmt.Sprintf("%x", hash[:4])
	}
	return p
}

// name is one for a relay of this process.
func (p process) name() string {
	if p.space == "" {
		return fmt.Sprintf("%s-%d-%08x", p.host, p.pid, rand.Uint32())
	}
	return fmt.Sprintf("%s-%d-%s-%s-%04x", p.host, p.pid, p.began, p.space, rand.N(1<<16))
}

// isGone reports whether the relay's name is one of a process that ran here, and is no more.
func (p process) isGone(relay string) bool {
	own, found := strings.CutPrefix(relay, p.host+"-")
	parts := strings.Split(own, "-")
	if !found || len(parts) != 4 || p.space == "" || parts[2] != p.space {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil || pid <= 0 {
		return false
	}
	if began := beginning(pid); began != "" {
		return began != parts[1]
	}
	other, err := os.FindProcess(pid) // what can't be looked at may be there all the same
	return err == nil && errors.Is(other.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// beginning is when a process began, by the field starttime of proc_pid_stat(5); "ended" if it has
// ended, and its parent hasn't heard of it; empty where there is none, or it can't be seen.
func beginning(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	fields := strings.Fields(string(rest)) // from the third on: the state
	if len(fields) < 20 {
		return ""
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "ended"
	}
	return fields[19]
}
