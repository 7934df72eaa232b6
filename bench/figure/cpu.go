package figure

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// CPU is time of processors: this process's, and that of all others on the
// machine, the servers among them.
type CPU struct{ Own, Others time.Duration }

// Spent is what was spent so far. The others are known on Linux only.
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

// machineTime is the time that all processors were busy.
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

// Since is what was spent after another time.
func (c CPU) Since(before CPU) CPU { return CPU{c.Own - before.Own, c.Others - before.Others} }

// Each is the part of one of n, in microseconds.
func (c CPU) Each(n int) (own, others float64) {
	return float64(c.Own.Nanoseconds()) / 1000 / float64(n), float64(c.Others.Nanoseconds()) / 1000 / float64(n)
}
