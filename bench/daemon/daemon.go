// Package daemon runs the rowrelay command, built from the parent module.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Program returns the path of the command, which is the value of ROWRELAY_BENCH_COMMAND. If the
// variable isn't set, Program builds the command once per run.
var Program = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("ROWRELAY_BENCH_COMMAND"); given != "" {
		return given, nil
	}
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/rowrelay/rowrelay").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder; run this in bench: %w", err)
	}
	folder, err := os.MkdirTemp("", "rowrelay-bench")
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "rowrelay")
	build := exec.Command("go", "build", "-o", file, "./cmd/rowrelay")
	build.Dir = strings.TrimSpace(string(root))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return file, nil
})

// Process is a running command.
type Process struct {
	command *exec.Cmd
	output  bytes.Buffer
	ended   chan error
	peak    int64
}

// Start runs the command.
func Start(ctx context.Context, args ...string) (*Process, error) {
	file, err := Program()
	if err != nil {
		return nil, err
	}
	p := &Process{command: exec.CommandContext(ctx, file, args...), ended: make(chan error, 1)}
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.command.Wait() }()
	return p, nil
}

// Watch waits until the process ends, and watches its memory. After `atMost` it stops the process. It returns how
// long the process ran.
func (p *Process) Watch(atMost time.Duration) (ran time.Duration, err error) {
	began := time.Now()
	stop := time.After(atMost)
	for {
		select {
		case err := <-p.ended:
			if err != nil {
				err = fmt.Errorf("rowrelay: %w\n%s", err, p.output.String())
			}
			return time.Since(began), err
		case <-stop:
			if err := p.command.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return 0, err
			}
		case <-time.After(20 * time.Millisecond):
			p.look()
		}
	}
}

// Peak returns the peak of the resident memory in bytes. The peak is known only on Linux.
func (p *Process) Peak() int64 { return p.peak }

func (p *Process) look() {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			p.peak = max(p.peak, kib<<10)
		}
	}
}
