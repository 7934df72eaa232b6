// Package plugins runs a sink in another process: a plug-in.
//
// An author writes a main function that calls [Serve] with a sink, or
// [ServeKind] with a kind that has settings; README.md tells how, and how to
// write one in another language. The relay uses it as the sink of [New], which
// configurations and URLs know by [Kind].
//
// The plug-in is started by the relay, and ends with it. What it does wrong is
// this sink's trouble alone: a plug-in that dies is started again, one that
// doesn't answer is killed.
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

// Sink is a sink whose work a plug-in does.
//
// Open starts the plug-in where it isn't running, and opens the plug-in's sink.
// A plug-in that dies makes the sink unavailable until it is opened again; what
// was handed to it and not answered is a retry with an unknown result, and is
// handed over one message at a time when it comes again, so that a message that
// kills the plug-in harms no other.
//
// The sink keeps the order within a key as [sinks.OrderPrefix] has it, whatever
// the plug-in promises, and the limits that the plug-in names. Its methods may
// be called concurrently as the contract says.
type Sink struct {
	options Options
	redact  settings.Redactor

	mu       sync.Mutex
	process  *process   // the latest; nil before the first
	promise  sinkLimits // of its sink
	crashes  crashes
	suspects suspects
	lastSend atomic.Uint64
}

// New returns a Sink. It starts nothing.
func New(options Options) (*Sink, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make the plug-in sink: %w", err)
	}
	s := &Sink{options: options, redact: options.redactor()}
	s.crashes = crashes{most: options.MaxCrashes, pause: options.CrashPause}
	return s, nil
}

// Destination is the plug-in's program, and a checksum of its settings: where these lead is its own affair.
func (s *Sink) Destination() string {
	return fmt.Sprintf("plug-in %s, settings %08x", s.options.Path, crc32.ChecksumIEEE(fmt.Append(nil, s.options.Config)))
}

// Order is that the messages of a key are delivered in their order.
func (s *Sink) Order() sinks.Order { return sinks.OrderPrefix }

// Open starts the plug-in where it isn't running, and opens its sink.
func (s *Sink) Open(ctx context.Context) error {
	p, err := s.running(ctx)
	if err != nil {
		return s.hide(err)
	}
	promise, err := p.open(ctx)
	if err != nil {
		return s.hide(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promise = promise
	return nil
}

// open opens the plug-in's sink.
func (p *process) open(ctx context.Context) (sinkLimits, error) {
	request := &pluginv1.OpenRequest{Settings: p.options.settings(), TimeoutMs: remaining(ctx)}
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

// sinkLimits is what a plug-in's open sink promises, and asks for. Numbers that are
// zero are no limit.
type sinkLimits struct {
	order        sinks.Order
	messages     int
	bytes        int // of payload
	requestBytes int // encoded; never zero
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

// enter waits for a place among the calls of Send.
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

// running returns a process that lives, started now if there is none.
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
		// Where no program was run, or the caller gave up, there was no crash.
		if failed := (*startError)(nil); ctx.Err() == nil && errors.As(err, &failed) && failed.ran {
			s.crashes.count(time.Now(), err)
		}
		return nil, err
	}
	s.replace(p)
	return p, nil
}

// reap clears away after a process that has ended by itself.
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

// longLife is how long a plug-in has to live to have been no crash even if it
// delivered nothing.
const longLife = time.Minute

// crashes ends the restarts of a plug-in that never comes to anything. It is
// used by Open alone.
type crashes struct {
	most  int
	pause time.Duration

	inARow int
	until  time.Time // when it may be started again
	last   error
}

// count notes a crash.
func (c *crashes) count(now time.Time, cause error) {
	c.inARow++
	c.last = cause
	if c.inARow >= c.most {
		c.until = now.Add(c.pause)
	}
}

// forget is called after a life that was of use.
func (c *crashes) forget() { c.inARow, c.until, c.last = 0, time.Time{}, nil }

// allow says whether the plug-in may be started now. After the pause it gets one
// more try, and another pause if that is in vain.
func (c *crashes) allow(now time.Time) error {
	if now.Before(c.until) {
		return config("the plug-in has ended %d times in a row without delivering anything, and is not started again before %s, or until the relay is: %v",
			c.inARow, c.until.UTC().Format(time.TimeOnly+" UTC"), c.last)
	}
	return nil
}

// Close closes the plug-in's sink and ends the plug-in. It takes no longer than
// a few seconds after the context has ended.
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

// close asks the plug-in to close its sink; one that is gone has nothing open.
func (p *process) close(ctx context.Context) error {
	if !p.alive() {
		return nil
	}
	response, err := p.sink.Close(ctx, &pluginv1.CloseRequest{})
	if err != nil {
		if ctx.Err() == nil && p.hasEnded(err) { // it went while it was asked
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

// hide takes the secrets out of what a plug-in, or the system, has said.
func (s *Sink) hide(err error) error {
	o := sinks.Unopened(err)
	return &sinks.OpenError{Reason: o.Reason, Detail: s.redact.Redact(o.Detail)}
}

// remaining is what is left of a context's time, in milliseconds; 0 where there
// is no limit.
func remaining(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(millis(time.Until(deadline)), 1)
}

// said is what an error of a call says, without gRPC's words around it.
func said(err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case s.Code() == codes.Unimplemented:
		return errors.New("it doesn't know this call of the plug-in protocol")
	}
	return errors.New(shorten(s.Message(), maxDetail))
}

// Description is what a plug-in says of itself.
type Description struct {
	Name     string           // in lower case
	Summary  string           // a sentence
	Version  string           // of the plug-in; may be empty
	Protocol int              // the version of the plug-in protocol that both sides speak
	Fields   []settings.Field // the settings that it takes, as config or secrets
}

// Describe starts the plug-in where it isn't running, and asks it what it is. Its
// settings need not be right for that. Not to be called while Open or Close is;
// Close ends what it has started.
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

// Program is the path of the plug-in's program as it was configured.
func (s *Sink) Program() string { return s.options.Path }

// Checksums returns the SHA-256 checksum that the plug-in's program has now, and
// the one that it must have, which is empty where none was configured.
func (s *Sink) Checksums() (has, must string, err error) {
	must = strings.ToLower(s.options.SHA256)
	path, err := exec.LookPath(s.options.Path)
	if err == nil {
		has, err = copyTo(io.Discard, path)
	}
	return has, must, err
}
