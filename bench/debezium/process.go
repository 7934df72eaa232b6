// Package debezium runs the two systems that the scene debezium compares: Debezium's connector for
// PostgreSQL on Kafka Connect, and the rowrelay command. Each of them is a process that delivers the
// messages of an outbox table to Kafka.
package debezium

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rowrelay/rowrelay/bench/cpu"
)

// Process is the running process of a compared system.
type Process struct {
	command *exec.Cmd
	log     *os.File
	ended   chan struct{}
}

// start starts a process that ends when this process ends.
func start(name string, words ...string) (*Process, error) {
	log, err := os.CreateTemp("", "rowrelay-bench-"+name)
	if err != nil {
		return nil, err
	}
	p := &Process{exec.Command(words[0], words[1:]...), log, make(chan struct{})}
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, errors.Join(err, log.Close(), os.Remove(log.Name())))
	}
	go func() { _ = p.command.Wait(); close(p.ended) }()
	return p, nil
}

// Alive returns an error with the end of the log if the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		text, _ := os.ReadFile(p.log.Name())
		return fmt.Errorf("the process has ended unexpectedly: %s", text[max(0, len(text)-2000):])
	default:
		return nil
	}
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill() { p.end(syscall.SIGKILL, time.Minute) }

// Stop signals the process to end, and kills it if it doesn't end in time.
func (p *Process) Stop() { p.end(syscall.SIGTERM, 40*time.Second) }

func (p *Process) end(signal syscall.Signal, patience time.Duration) {
	_ = p.command.Process.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.command.Process.Kill()
		<-p.ended
	}
	_ = errors.Join(p.log.Close(), os.Remove(p.log.Name()))
}

// CPU returns the CPU time that the process has used.
func (p *Process) CPU() (time.Duration, error) { return cpu.Family(p.command.Process.Pid) }

// Memory returns the current and the peak resident memory in MiB.
func (p *Process) Memory() (now, peak float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	for line := range bytes.Lines(text) {
		words := strings.Fields(string(line))
		if len(words) < 2 {
			continue
		}
		kib, _ := strconv.ParseFloat(words[1], 64)
		switch words[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	return now, peak
}
