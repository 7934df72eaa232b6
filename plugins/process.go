package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	goplugintypes "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// process is one process of a plug-in. It is started only once.
type process struct {
	options Options
	output  *output
	home    *home // its private directory
	client  *goplugin.Client
	runner  *runner
	started time.Time

	connection goplugin.ClientProtocol
	sink       pluginv1.SinkClient
	delivered  atomic.Bool // the plug-in has delivered a message
	watching   sync.WaitGroup

	mu     sync.Mutex
	killed error // why the relay killed the process
}

// start starts the plug-in and waits until it answers. After an error, the process has
// ended and its files are removed.
func start(ctx context.Context, options Options) (*process, error) {
	p := &process{options: options, started: time.Now()}
	p.output = &output{logger: options.Logger.With("plugin", options.name()), redact: options.redactor()}
	p.runner = newRunner(p.output)
	ctx, cancel := context.WithTimeoutCause(ctx, options.StartTimeout, errSilent)
	defer cancel()
	err := p.prepare()
	if err == nil {
		err = p.connect(ctx)
	}
	if err != nil {
		err = p.explain(err)
		p.end(false)
		return nil, &startError{fmt.Errorf("start the plug-in %s: %w", options.name(), err), p.runner.ran()}
	}
	p.options.Logger.Info("plug-in started", "plugin", options.name(), "pid", p.runner.ID())
	p.watching.Go(p.watch)
	return p, nil
}

// startError is the error of a failed start of a plug-in.
type startError struct {
	error
	ran bool // a process was running
}

func (e *startError) Unwrap() error { return e.error }

// errSilent is the cause of a context that ended because a plug-in took too long to start.
var errSilent = errors.New("it did not answer in time")

// prepare makes the private directory and finds the program.
func (p *process) prepare() (err error) {
	if p.home, err = newHome(p.options.Directory); err != nil {
		return err
	}
	program, err := exec.LookPath(p.options.Path)
	if err != nil {
		return err
	}
	if p.options.SHA256 != "" {
		if program, err = p.home.checkedCopy(program, p.options.SHA256); err != nil {
			return err
		}
	}
	self := &identity{}
	if !p.options.NoTLS {
		if self, err = newIdentity(); err != nil {
			return err
		}
	}
	p.client = goplugin.NewClient(p.clientConfig(program, self)) // a client can be used only once
	return nil
}

// clientConfig returns the configuration of go-plugin.
func (p *process) clientConfig(program string, self *identity) *goplugin.ClientConfig {
	return &goplugin.ClientConfig{
		HandshakeConfig:  cookie,
		VersionedPlugins: versions(nil),
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		TLSConfig:        self.config,
		SkipHostEnv:      true,
		StartTimeout:     p.options.StartTimeout + time.Minute, // longer than the option, so that process.connect times out first, with a clearer error
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: p.home.path},
		Logger:           hclog.NewNullLogger(),
		SyncStdout:       p.output,
		SyncStderr:       p.output,
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithDisableRetry(), // the relay decides whether to retry
			grpc.WithDisableServiceConfig(),
			grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
			grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(responseBytes)),
		},
		RunnerFunc: func(_ hclog.Logger, command *exec.Cmd, _ string) (goplugintypes.Runner, error) {
			p.complete(command, program, self)
			p.runner.command = command
			return p.runner, nil
		},
	}
}

// complete sets the program and its environment, which has go-plugin's variables and the variables of the options.
// The socket is placed directly in the process's [home]. By default, go-plugin would put the socket into a folder
// below the home. The socket's path would then be 21 bytes longer, too long for the temporary directories of many
// systems.
func (p *process) complete(command *exec.Cmd, program string, self *identity) {
	command.Path, command.Args = program, append([]string{p.options.Path}, p.options.Args...)
	command.Env = slices.DeleteFunc(command.Env, func(variable string) bool {
		return strings.HasPrefix(variable, goplugin.EnvUnixSocketDir+"=")
	})
	command.Env = append(command.Env, p.home.variable())
	if self.pem != "" {
		command.Env = append(command.Env, certificateVariable+"="+self.pem)
	}
	for name, value := range p.options.Env {
		command.Env = append(command.Env, name+"="+value.Reveal())
	}
	if _, set := p.options.Env["GOMEMLIMIT"]; !set && p.options.Memory > 0 {
		command.Env = append(command.Env, fmt.Sprintf("GOMEMLIMIT=%d", p.options.Memory/10*9))
	}
	slices.Sort(command.Env)
}

// connect starts the program and waits for its answer until the context ends.
func (p *process) connect(ctx context.Context) error {
	connected := make(chan error, 1)
	go func() { connected <- p.dial() }()
	select {
	case err := <-connected:
		return err
	case <-ctx.Done():
		p.kill(nil)
		<-connected // returns because the process is dead
		return context.Cause(ctx)
	}
}

// dial lets go-plugin start the program. It recovers from go-plugin's panic if a
// plug-in offers a certificate that was not requested.
func (p *process) dial() (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("invalid handshake: %v", cause)
		}
	}()
	connection, err := p.client.Client()
	if err != nil {
		return err
	}
	sink, err := connection.Dispense(serviceName)
	if err != nil {
		return err
	}
	if err := connection.Ping(); err != nil {
		return err
	}
	p.connection = connection
	p.sink = sink.(pluginv1.SinkClient)
	return nil
}

// watch kills a plug-in that no longer answers or uses too much memory.
func (p *process) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.options.Memory > 0 {
		p.watching.Go(func() { p.every(ctx, memoryInterval, p.checkMemory) })
	}
	p.every(ctx, p.options.HealthInterval, p.checkHealth)
}

// memoryInterval is how often the memory of a plug-in with a limit is measured.
const memoryInterval = 200 * time.Millisecond

// every runs a check periodically until the process has exited. It kills the process
// if the check fails.
func (p *process) every(ctx context.Context, interval time.Duration, check func() error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-p.gone():
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := check(); err != nil && p.alive() {
			p.options.Logger.Error("plug-in killed", "plugin", p.options.name(), "pid", p.runner.ID(), "cause", err)
			p.kill(err)
		}
	}
}

func (p *process) checkMemory() error {
	if bytes := used(p.runner.number()); bytes > p.options.Memory {
		return fmt.Errorf("used %d MiB of memory, more than its limit of %d MiB", bytes>>20, p.options.Memory>>20)
	}
	return nil
}

// checkHealth calls the plug-in's health service. It fails if the plug-in reports an
// error or doesn't answer in time.
func (p *process) checkHealth() error {
	answer := make(chan error, 1)
	go func() { answer <- p.connection.Ping() }()
	timer := time.NewTimer(p.options.HealthTimeout)
	defer timer.Stop()
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("failed a health check: %w", err)
		}
		return nil
	case <-p.gone():
		return nil
	case <-timer.C:
		return errors.New("didn't answer a health check within " + p.options.HealthTimeout.String())
	}
}

// kill kills the process and its children. It stores the first cause that is
// not nil.
func (p *process) kill(cause error) {
	p.mu.Lock()
	if p.killed == nil {
		p.killed = cause
	}
	p.mu.Unlock()
	_ = p.runner.Kill(context.Background())
}

// gone returns a channel that is closed when the process has exited.
func (p *process) gone() <-chan struct{} { return p.runner.exited }

func (p *process) alive() bool {
	select {
	case <-p.gone():
		return false
	default:
		return true
	}
}

// exitError returns an error that describes how the process ended.
func (p *process) exitError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.killed != nil:
		return fmt.Errorf("the plug-in %s %w and was killed", p.options.name(), p.killed)
	case p.runner.state == nil:
		return fmt.Errorf("the plug-in %s exited%s", p.options.name(), p.output.words())
	}
	return fmt.Errorf("the plug-in %s exited (%s)%s", p.options.name(), p.runner.state, p.output.words())
}

// end ends the process and removes its files. If politely is true, it first asks the
// process to exit. It returns within a few seconds, even if the process doesn't react.
func (p *process) end(politely bool) {
	if !politely {
		p.kill(nil)
	}
	if p.client != nil {
		p.hangUp()
	}
	p.watching.Wait()
	p.home.remove()
}

// politeness is how long a process may take to exit after the relay has asked it to.
const politeness = 2 * time.Second

// hangUp lets go-plugin end the process, and kills the process if that takes
// too long.
func (p *process) hangUp() {
	done := make(chan struct{})
	go func() { p.client.Kill(); close(done) }()
	timer := time.AfterFunc(politeness, func() { p.kill(nil) })
	<-done
	timer.Stop()
	if p.runner.ran() {
		p.kill(nil)
		<-p.gone()
		p.options.Logger.Info("plug-in ended", "plugin", p.options.name(), "pid", p.runner.ID())
	}
}

// explain converts the error of a failed start to an error that helps an operator.
func (p *process) explain(err error) error {
	var known *sinks.OpenError
	switch {
	case errors.As(err, &known):
		return err
	case notFound(err):
		return config("%s can't be run: %v; check that the path is right and the file is executable", p.options.Path, err)
	case errors.Is(err, errSilent) && p.output.greeting() == "":
		return connection("%w: no handshake line within %v (start_timeout)%s", err, p.options.StartTimeout, p.output.words())
	case !p.runner.ran():
		return err
	}
	if problem := p.misgreeting(); problem != nil {
		return problem
	}
	if p.output.greeting() == "" && p.endsSoon() {
		return connection("it exited immediately (%s)%s", p.runner.state, p.output.words())
	}
	return connection("%w%s", said(err), p.output.words())
}

// misgreeting checks the handshake line, the first line that the plug-in printed. Its
// fields are the version of go-plugin's protocol, the version of the plug-in protocol,
// the network, the address, the word grpc, and a certificate.
func (p *process) misgreeting() error {
	greeting := p.output.greeting()
	parts := strings.Split(greeting, "|")
	switch {
	case greeting == "":
		return nil
	case len(parts) < 4 || parts[0] != "1":
		return config("it printed %q instead of the handshake line: check that it is a plug-in of rowrelay and prints nothing else to its standard output",
			shorten(p.output.redact.Redact(greeting), 100))
	case parts[1] != strconv.Itoa(protocolVersion):
		return config("it speaks version %q of the plug-in protocol, and this relay speaks version %d: use compatible versions", shorten(parts[1], 20), protocolVersion)
	case len(parts) < 5 || parts[4] != "grpc":
		return config("it doesn't speak gRPC, which the plug-in protocol requires")
	case !p.options.NoTLS && (len(parts) < 6 || len(parts[5]) < 50):
		return config("it offers no certificate: set tls: false if it doesn't support TLS; its socket is in a private directory in any case")
	case p.options.NoTLS && len(parts) > 5 && len(parts[5]) > 50:
		return config("it offers a certificate although tls is false: remove tls: false, or change the plug-in so that it offers one only if this environment variable is set: " + certificateVariable)
	}
	return nil
}

// notFound reports whether the error means that the program can't be run at
// all.
func notFound(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrPermission) ||
		errors.Is(err, syscall.ENOEXEC)
}

func config(format string, args ...any) error {
	return &sinks.OpenError{Reason: sinks.ReasonConfig, Detail: fmt.Errorf(format, args...).Error()}
}

func connection(format string, args ...any) error {
	return &sinks.OpenError{Reason: sinks.ReasonConnection, Detail: fmt.Errorf(format, args...).Error()}
}
