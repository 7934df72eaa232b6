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

// runner is the plug-in's process. It does what go-plugin's own runner leaves
// undone: the process ends with the relay, its whole group is killed, and what
// it prints can't hurt.
type runner struct {
	command *exec.Cmd // set before Start
	output  *output

	stdin           *os.File // its end tells the plug-in that the relay is gone
	stdout, stderr  *os.File // what we read of the process
	handshakeReader *io.PipeReader
	handshakeWriter *io.PipeWriter

	mu     sync.Mutex
	pid    int  // 0 before the start
	killed bool // which may come before the start

	state  *os.ProcessState // once exited
	exited chan struct{}
	reads  sync.WaitGroup
}

var _ goplugin.Runner = (*runner)(nil)

func newRunner(out *output) *runner {
	r := &runner{output: out, exited: make(chan struct{})}
	r.handshakeReader, r.handshakeWriter = io.Pipe()
	return r
}

// Start starts the process and its care-taker.
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

// live starts the process and waits for its end, on one thread: the kernel takes
// the end of the thread that has started the process for that of the relay.
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

// drainGrace is how long what a process has left in its pipes may take to be
// read. Only a process that has left the group can hold them open for longer.
const drainGrace = 2 * time.Second

// ended clears away after the process. Its children may live yet, and the number
// of its group is theirs until the last is gone.
func (r *runner) ended() {
	killGroup(r.pid)
	deadline := time.Now().Add(drainGrace)
	_, _ = r.stdout.SetReadDeadline(deadline), r.stderr.SetReadDeadline(deadline)
	r.reads.Wait()
	r.output.reportUnlogged()
	_ = r.hangUp()
	close(r.exited)
}

// hangUp closes the relay's ends.
func (r *runner) hangUp() error {
	return closeAll([]*os.File{r.stdin, r.stdout, r.stderr})
}

// pipes connects the process's standard files; those that it is given are
// returned.
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

// Wait returns when the process has ended and everything of it was read.
func (r *runner) Wait(context.Context) error {
	<-r.exited
	return nil
}

// Kill kills the process and its group. It doesn't wait.
func (r *runner) Kill(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killed = true
	select {
	case <-r.exited: // its number may be another's by now
	default:
		if r.pid != 0 {
			killGroup(r.pid)
		}
	}
	return nil
}

// ran says whether there ever was a process.
func (r *runner) ran() bool { return r.number() != 0 }

func (r *runner) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pid
}

// Stdout has the first line that the process prints, which go-plugin reads.
func (r *runner) Stdout() io.ReadCloser { return r.handshakeReader }

// Stderr is empty: the relay reads it by itself.
func (*runner) Stderr() io.ReadCloser { return io.NopCloser(bytes.NewReader(nil)) }

// Name is the program's path.
func (r *runner) Name() string { return r.command.Path }

// ID is the process's number.
func (r *runner) ID() string { return strconv.Itoa(r.number()) }

// Diagnose adds nothing: whoever asks has the output.
func (*runner) Diagnose(context.Context) string { return "" }

// PluginToHost returns the address that the plug-in told.
func (*runner) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin returns the relay's address.
func (*runner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
