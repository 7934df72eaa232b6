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

// Fast restart. A relay that has died holds its lanes until its leases expire. Another relay may take the lanes sooner in two
// cases: if it has the same name, which an operator has configured, or if it finds that the dead relay's process no longer
// exists. For the second case a relay's default name identifies its process by the host, the process id, the start time, and a
// hash of the boot id and the PID namespace (each container has its own). A wrong conclusion causes only duplicates, since the
// writes of a relay that is still alive are fenced.

// process identifies a process on a host.
type process struct {
	host  string
	pid   int
	began string // the start time in ticks since boot; empty if space is empty
	space string // a hash of the boot id and the PID namespace; empty if the system doesn't report all of these and the start time
}

// thisProcess returns the current process.
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

// name returns a new name for a relay of this process.
func (p process) name() string {
	if p.space == "" {
		return fmt.Sprintf("%s-%d-%08x", p.host, p.pid, rand.Uint32())
	}
	return fmt.Sprintf("%s-%d-%s-%s-%04x", p.host, p.pid, p.began, p.space, rand.N(1<<16))
}

// isGone reports whether the relay's name identifies a process of this host that no longer exists.
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
	other, err := os.FindProcess(pid)
	// An error other than ErrProcessDone, for example a permission error, doesn't show that the process is gone.
	return err == nil && errors.Is(other.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// beginning returns the start time of a process, from the field starttime of proc_pid_stat(5). It returns "ended" for a zombie,
// and "" if no such process exists or its start time can't be read.
func beginning(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	fields := strings.Fields(string(rest)) // the state, which is the third field, and all later fields
	if len(fields) < 20 {
		return ""
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "ended"
	}
	return fields[19]
}
