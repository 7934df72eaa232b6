package figure

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// CPU has the processor time of this process, and of all other processes on the machine, including
// the servers.
type CPU struct{ Own, Others time.Duration }

// Spent returns the processor time used so far. Others is known only on Linux.
func Spent() (c CPU) {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		c.Own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if all := machineTime(); all > 0 {
		c.Others = all - c.Own
	}
	return c
}

// machineTime returns the time for which processors were busy, added up over all processors.
func machineTime() time.Duration {
	file, err := os.Open("/proc/stat")
	if err != nil {
		return 0
	}
	defer file.Close()
	line, _ := bufio.NewReader(file).ReadString('\n')
	var user, nice, system, idle, wait, irq, soft int64
	if _, err := fmt.Sscan(strings.TrimPrefix(line, "cpu"), &user, &nice, &system, &idle, &wait, &irq, &soft); err != nil {
		return 0
	}
	const tick = 10 * time.Millisecond
	return time.Duration(user+nice+system+irq+soft) * tick
}

// Since returns the processor time used since an earlier value.
func (c CPU) Since(before CPU) CPU { return CPU{c.Own - before.Own, c.Others - before.Others} }

// Each divides the processor time by n items, and returns microseconds per item.
func (c CPU) Each(n int) (own, others float64) {
	return float64(c.Own.Nanoseconds()) / 1000 / float64(n), float64(c.Others.Nanoseconds()) / 1000 / float64(n)
}
