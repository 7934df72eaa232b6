package plugins

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	goplugin "github.com/hashicorp/go-plugin/runner"
)

// runner runs the plug-in's process. Unlike go-plugin's own runner, it ends the
// process when the relay ends, kills the whole process group, and limits how much output is kept.
type runner struct {
	command *exec.Cmd // set before Start
	output  *output

	stdin           *os.File // never written; the plug-in exits when it is closed
	stdout, stderr  *os.File // the relay's ends of the pipes
	handshakeReader *io.PipeReader
	handshakeWriter *io.PipeWriter

	mu     sync.Mutex
	pid    int  // 0 before the start
	killed bool // may be set before the start

	state  *os.ProcessState // set before the channel `exited` is closed
	exited chan struct{}
	reads  sync.WaitGroup
}

var _ goplugin.Runner = (*runner)(nil)

func newRunner(out *output) *runner {
	r := &runner{output: out, exited: make(chan struct{})}
	r.handshakeReader, r.handshakeWriter = io.Pipe()
	return r
}

// Start starts the process and a goroutine that waits for it.
func (r *runner) Start(context.Context) error {
	theirs, err := r.pipes()
	if err != nil {
		return errors.Join(err, closeAll(theirs), r.hangUp())
	}
	started := make(chan error, 1)
	go r.live(started)
	err = <-started
	_ = closeAll(theirs)
	if err != nil {
		return errors.Join(err, r.hangUp())
	}
	return nil
}

// live starts the process and waits until it has ended. It locks its thread, because the
// kernel kills the process when the thread that started the process ends.
func (r *runner) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := r.begin(); err != nil {
		started <- err
		return
	}
	r.reads.Go(func() { r.output.readStdout(r.stdout, r.handshakeWriter) })
	r.reads.Go(func() { r.output.readStderr(r.stderr) })
	started <- nil
	r.state, _ = r.command.Process.Wait()
	r.ended()
}

func (r *runner) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return errors.New("start the plug-in: it was killed already")
	}
	isolate(r.command)
	if err := r.command.Start(); err != nil {
		return err
	}
	r.pid = r.command.Process.Pid
	sacrifice(r.pid)
	return nil
}

// drainGrace limits how long the rest of a process's output is read after its exit.
// Only a process that has left the group can hold the pipes open for longer.
const drainGrace = 2 * time.Second

// ended cleans up after the process has exited. It kills the children that still run. This can't
// kill unrelated processes, because the id of the group is not reused while one of its processes
// runs.
func (r *runner) ended() {
	killGroup(r.pid)
	deadline := time.Now().Add(drainGrace)
	_, _ = r.stdout.SetReadDeadline(deadline), r.stderr.SetReadDeadline(deadline)
	r.reads.Wait()
	r.output.reportUnlogged()
	_ = r.hangUp()
	close(r.exited)
}

// hangUp closes the relay's ends of the pipes.
func (r *runner) hangUp() error {
	return closeAll([]*os.File{r.stdin, r.stdout, r.stderr})
}

// pipes connects the process's standard files to pipes and returns the process's
// ends.
func (r *runner) pipes() (theirs []*os.File, err error) {
	var in, out, report *os.File
	var errs [3]error
	in, r.stdin, errs[0] = os.Pipe()
	r.stdout, out, errs[1] = os.Pipe()
	r.stderr, report, errs[2] = os.Pipe()
	r.command.Stdin, r.command.Stdout, r.command.Stderr = in, out, report
	return []*os.File{in, out, report}, errors.Join(errs[:]...)
}

func closeAll(files []*os.File) (err error) {
	for _, file := range files {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

// Wait returns when the process has exited and all of its output has been read.
func (r *runner) Wait(context.Context) error {
	<-r.exited
	return nil
}

// Kill kills the process and its group, without waiting for them to end.
func (r *runner) Kill(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	select {
	case <-r.exited: // another process may have the same id now
	default:
		if r.pid != 0 {
			killGroup(r.pid)
		}
	}
	return nil
}

// ran reports whether a process was started.
func (r *runner) ran() bool { return r.number() != 0 }

func (r *runner) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

// Stdout returns a reader of the first line that the process prints, the handshake,
// which go-plugin parses.
func (r *runner) Stdout() io.ReadCloser { return r.handshakeReader }

// Stderr returns an empty reader: the relay itself reads the standard error.
func (*runner) Stderr() io.ReadCloser { return io.NopCloser(bytes.NewReader(nil)) }

// Name returns the program's path.
func (r *runner) Name() string { return r.command.Path }

// ID returns the process id.
func (r *runner) ID() string { return strconv.Itoa(r.number()) }

// Diagnose returns "": the errors already contain the output.
func (*runner) Diagnose(context.Context) string { return "" }

// PluginToHost returns the address that the plug-in reported.
func (*runner) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin returns the relay's address.
func (*runner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
