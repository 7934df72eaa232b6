// Package plugins runs sinks as plug-ins, each in its own process.
//
// The author of a plug-in writes a main function that calls [Serve] with a sink, or [ServeKind] with a kind
// that has settings. README.md explains this and how to use other languages. The relay runs the plug-in
// through the sink that [New] returns; [Kind] makes that sink for configuration files and URLs.
//
// The relay starts and ends the plug-in. A failing plug-in affects no other sink: a plug-in that dies is
// restarted, and a plug-in that doesn't answer is killed and restarted.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Sink is a sink that passes its messages to a plug-in.
//
// Open starts the plug-in if it isn't running and opens the plug-in's sink. If the plug-in dies, the sink is unavailable
// until it is opened again. Messages for which the plug-in has returned no outcome are retried and may be charged an
// attempt, because their outcome is unknown. These messages are then sent one at a time, so that only a message that
// kills the plug-in is charged again.
//
// The sink preserves the order within each key as [sinks.OrderPrefix] requires, even if the plug-in's sink
// promises no order. Its batches stay within the limits that the plug-in reports. Its methods may be called
// concurrently, as the contract of [sinks.Sink] says.
type Sink struct {
	options Options
	redact  settings.Redactor

	mu       sync.Mutex
	process  *process   // the current process, or one that died and was not cleaned up yet; otherwise nil
	promise  sinkLimits // the order and limits that the plug-in's sink reported when it was opened
	crashes  crashes
	suspects suspects
	lastSend atomic.Uint64
}

// New returns a Sink. It doesn't start the plug-in.
func New(options Options) (*Sink, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make the plug-in sink: %w", err)
	}
	s := &Sink{options: options, redact: options.redactor()}
	s.crashes = crashes{most: options.MaxCrashes, pause: options.CrashPause}
	return s, nil
}

// Destination returns the plug-in's program and a checksum of its settings. It can't name the real
// destination, because only the plug-in can interpret the settings.
func (s *Sink) Destination() string {
	return fmt.Sprintf("plug-in %s, settings %08x", s.options.Path, crc32.ChecksumIEEE(fmt.Append(nil, s.options.Config)))
}

// Order returns [sinks.OrderPrefix].
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Open starts the plug-in if it isn't running and opens its sink.
func (s *Sink) Open(ctx context.Context) error { return s.open(ctx, false) }

// Check starts the plug-in if it isn't running. If the plug-in's sink is a [sinks.Checker], Check calls its method Check.
// Otherwise it opens the sink.
func (s *Sink) Check(ctx context.Context) error { return s.open(ctx, true) }

func (s *Sink) open(ctx context.Context, checkOnly bool) error {
	p, err := s.running(ctx)
	if err != nil {
		return s.hide(err)
	}
	promise, err := p.open(ctx, checkOnly)
	if err != nil {
		return s.hide(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promise = promise
	return nil
}

// open opens or checks the plug-in's sink.
func (p *process) open(ctx context.Context, checkOnly bool) (sinkLimits, error) {
	request := &pluginv1.OpenRequest{Settings: p.options.settings(), TimeoutMs: remaining(ctx), CheckOnly: checkOnly}
	response, err := p.sink.Open(ctx, request)
	switch {
	case err != nil && !p.alive():
		return sinkLimits{}, p.exitError()
	case err != nil:
		return sinkLimits{}, fmt.Errorf("open the plug-in %s: %w", p.options.name(), said(err))
	case response.GetTrouble() != nil:
		trouble := outcomeFromWire(&pluginv1.Outcome{
			Result: pluginv1.Result_UNAVAILABLE, Reason: response.GetTrouble().GetReason(), Detail: response.GetTrouble().GetDetail(),
		})
		return sinkLimits{}, &sinks.OpenError{Reason: trouble.Reason, Detail: trouble.Detail}
	}
	return promiseOf(response), nil
}

// sinkLimits has the order and the limits that a plug-in's sink reported when it was opened. Zero means no limit.
type sinkLimits struct {
	order        sinks.Order
	messages     int
	bytes        int // total size of the payloads in a Send
	requestBytes int // size of an encoded request; never zero
	slots        chan struct{}
}

func promiseOf(response *pluginv1.OpenResponse) sinkLimits {
	p := sinkLimits{
		order:        ordersFromWire[response.GetOrder()],
		messages:     int(max(response.GetMaxMessages(), 0)),
		bytes:        int(max(response.GetMaxBytes(), 0)),
		requestBytes: int(min(response.GetMaxRequestBytes(), serverRequestBytes)),
	}
	if p.requestBytes <= 0 {
		p.requestBytes = defaultRequestBytes
	}
	if sends := response.GetMaxSends(); sends > 0 {
		p.slots = make(chan struct{}, min(sends, 1000))
	}
	return p
}

// enter waits until the limit of concurrent Sends allows another one. It
// returns false if the context ends first.
func (p sinkLimits) enter(ctx context.Context) bool {
	if p.slots == nil {
		return ctx.Err() == nil
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p sinkLimits) leave() {
	if p.slots != nil {
		<-p.slots
	}
}

// running returns the running process. If none runs, it starts one.
func (s *Sink) running(ctx context.Context) (*process, error) {
	if p := s.current(); p != nil {
		if p.alive() {
			return p, nil
		}
		s.reap(p)
	}
	if err := s.crashes.allow(time.Now()); err != nil {
		return nil, err
	}
	p, err := start(ctx, s.options)
	if err != nil {
		// The failure counts as a crash only if a process ran and the caller did not give up.
		if failed := (*startError)(nil); ctx.Err() == nil && errors.As(err, &failed) && failed.ran {
			s.crashes.count(time.Now(), err)
		}
		return nil, err
	}
	s.replace(p)
	return p, nil
}

// reap cleans up after a process that exited on its own.
func (s *Sink) reap(p *process) {
	ended := p.exitError()
	p.end(false)
	if p.delivered.Load() || time.Since(p.started) > longLife {
		s.crashes.forget()
	} else {
		s.crashes.count(time.Now(), ended)
	}
	s.replace(nil)
}

// longLife is the uptime after which an exit doesn't count as a crash, even if the plug-in delivered
// nothing.
const longLife = time.Minute

// crashes limits how often a plug-in that delivers nothing is restarted. Only Open, Check and Describe use it.
type crashes struct {
	most  int
	pause time.Duration

	consecutive int
	until       time.Time // no restart before this time
	last        error
}

// count records a crash.
func (c *crashes) count(now time.Time, cause error) {
	c.consecutive++
	c.last = cause
	if c.consecutive >= c.most {
		c.until = now.Add(c.pause)
	}
}

// forget resets the count of crashes, after the exit of a plug-in that delivered something or ran for longLife.
func (c *crashes) forget() { c.consecutive, c.until, c.last = 0, time.Time{}, nil }

// allow returns an error if the plug-in must not be started yet. After each pause the relay starts the plug-in once; if
// the plug-in crashes again, another pause begins.
func (c *crashes) allow(now time.Time) error {
	if now.Before(c.until) {
		return config("the plug-in exited %d times in succession without delivering anything; it is restarted after %s, or when the relay restarts: %v",
			c.consecutive, c.until.UTC().Format(time.TimeOnly+" UTC"), c.last)
	}
	return nil
}

// Close closes the plug-in's sink and ends the plug-in. It returns at most a few seconds after the context
// has ended.
func (s *Sink) Close(ctx context.Context) error {
	p := s.current()
	if p == nil {
		return nil
	}
	s.replace(nil)
	err := p.close(ctx)
	p.end(ctx.Err() == nil)
	if err != nil {
		return errors.New(s.redact.Redact(fmt.Sprintf("close the plug-in %s: %v", s.options.name(), err)))
	}
	return nil
}

// close asks the plug-in to close its sink. If the process has exited, close does nothing.
func (p *process) close(ctx context.Context) error {
	if !p.alive() {
		return nil
	}
	response, err := p.sink.Close(ctx, &pluginv1.CloseRequest{})
	if err != nil {
		if ctx.Err() == nil && p.hasEnded(err) { // it exited during the call
			return nil
		}
		return said(err)
	}
	if text := response.GetError(); text != "" {
		return errors.New(shorten(text, maxDetail))
	}
	return nil
}

func (s *Sink) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

func (s *Sink) replace(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
}

// hide removes the secrets from an error of the plug-in or the system.
func (s *Sink) hide(err error) error {
	o := sinks.Unopened(err)
	return &sinks.OpenError{Reason: o.Reason, Detail: s.redact.Redact(o.Detail)}
}

// remaining returns the time until a context's deadline in milliseconds, or 0 without a deadline.
func remaining(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(millis(time.Until(deadline)), 1)
}

// said returns the message of a gRPC error without gRPC's prefix.
func said(err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case s.Code() == codes.Unimplemented:
		return errors.New("it doesn't implement this call of the plug-in protocol")
	}
	return errors.New(shorten(s.Message(), maxDetail))
}

// Description is a plug-in's description of itself.
type Description struct {
	Name     string           // lower case
	Summary  string           // one sentence
	Version  string           // version of the plug-in; may be empty
	Protocol int              // plug-in protocol version that both sides use
	Fields   []settings.Field // settings that the plug-in accepts in config or secrets
}

// Describe starts the plug-in if it isn't running and returns its description. The settings of the plug-in
// need not be valid. Describe must not be called concurrently with Open or Close. Close ends the process
// that Describe started.
func (s *Sink) Describe(ctx context.Context) (Description, error) {
	p, err := s.running(ctx)
	if err != nil {
		return Description{}, s.hide(err)
	}
	response, err := p.sink.Describe(ctx, &pluginv1.DescribeRequest{})
	if err != nil {
		return Description{}, s.hide(fmt.Errorf("describe the plug-in %s: %w", s.options.name(), said(err)))
	}
	d := Description{
		Name: response.GetName(), Summary: response.GetSummary(), Version: response.GetVersion(), Protocol: p.client.NegotiatedVersion(),
	}
	for _, f := range response.GetFields() {
		d.Fields = append(d.Fields, settings.Field{
			Name: f.GetName(), Type: settings.FieldType(f.GetType()), Default: f.GetDefaultValue(), Required: f.GetRequired(), Help: f.GetHelp(),
			Min: f.GetMin(), Max: f.GetMax(), Choices: f.GetChoices(),
		})
	}
	return d, nil
}

// Program returns the path of the plug-in's program as configured.
func (s *Sink) Program() string { return s.options.Path }

// Checksums returns the current SHA-256 checksum of the plug-in's program, and the configured checksum, which is
// empty if none is configured.
func (s *Sink) Checksums() (has, must string, err error) {
	must = strings.ToLower(s.options.SHA256)
	path, err := exec.LookPath(s.options.Path)
	if err == nil {
		has, err = copyTo(io.Discard, path)
	}
	return has, must, err
}
