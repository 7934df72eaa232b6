// Package cpu measures the CPU time of this process and of a database server. It reads /proc, so
// the server must run on the same machine.
package cpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
)

// tick is the unit of times in /proc, which is fixed on Linux.
const tick = 10 * time.Millisecond

// Meter measures the CPU of this process, and of other processes with their children.
type Meter struct{ others []int }

// Of returns a meter of this process, the database's server (if it has one), and the processes with
// the given ids.
func Of(ctx context.Context, d *table.Database, more ...int) (Meter, error) {
	if d.Dialect.Name() == "sqlite" {
		return Meter{more}, nil
	}
	server, err := ServerOf(ctx, d)
	if err == nil {
		_, err = Family(server)
	}
	if err != nil {
		return Meter{}, fmt.Errorf("find the server's process, which has to be on this machine: %w", err)
	}
	return Meter{append(more, server)}, nil
}

// ServerOf returns the process id of the database's server.
func ServerOf(ctx context.Context, d *table.Database) (pid int, err error) {
	query, file := "SELECT @@pid_file, @@datadir", ""
	if d.Dialect.Name() == "postgres" {
		query = "SELECT 'postmaster.pid', current_setting('data_directory')"
	}
	var folder string
	if err := d.DB.QueryRowContext(ctx, query).Scan(&file, &folder); err != nil {
		return 0, err
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(folder, file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(strings.TrimSpace(first))
}

// Used returns the CPU time of all processes so far.
func (m Meter) Used() (time.Duration, error) {
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return 0, err
	}
	used := time.Duration(self.Utime.Nano() + self.Stime.Nano())
	for _, pid := range m.others {
		more, err := Family(pid)
		if err != nil {
			return 0, err
		}
		used += more
	}
	return used, nil
}

// Family returns the CPU time of a process and of its children, including the children that have
// ended.
func Family(pid int) (used time.Duration, err error) {
	own, err := statOf(strconv.Itoa(pid))
	if err != nil {
		return 0, err
	}
	used = own.used
	others, err := filepath.Glob("/proc/[0-9]*")
	for _, other := range others {
		if child, err := statOf(filepath.Base(other)); err == nil && child.parent == pid {
			used += child.used
		}
	}
	return used, err
}

type stat struct {
	parent int
	used   time.Duration
}

// statOf parses the part of /proc/PID/stat after the process's name, which may contain blanks. The
// first value is the state, the second is the parent, and the 12th to 15th are the CPU times of
// the process and of its ended children.
func statOf(pid string) (s stat, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return s, err
	}
	words := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(words) < 15 {
		return s, fmt.Errorf("read /proc/%s/stat: too short", pid)
	}
	if s.parent, err = strconv.Atoi(words[1]); err != nil {
		return s, err
	}
	for _, word := range words[11:15] {
		ticks, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return s, err
		}
		s.used += time.Duration(ticks) * tick
	}
	return s, nil
}
