package plugins

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
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
	redact  sinks.Redactor

	mu       sync.Mutex
	process  *process // the latest; nil before the first
	promise  promised // of its sink
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

// hide takes the secrets out of what a plug-in, or the system, has said.
func (s *Sink) hide(err error) error {
	o := sinks.Unopened(err)
	return &sinks.OpenError{Reason: o.Reason, Detail: s.redact.Redact(o.Detail)}
}

// running returns a process that lives, started now if there is none.
func (s *Sink) running(ctx context.Context) (*process, error) {
	if p := s.current(); p != nil {
		if p.alive() {
			return p, nil
		}
		s.bury(p)
	}
	if err := s.crashes.allow(time.Now()); err != nil {
		return nil, err
	}
	p, err := start(ctx, s.options)
	if err != nil {
		s.failedStart(ctx, err)
		return nil, err
	}
	s.replace(p)
	return p, nil
}

// failedStart counts a plug-in that ended or said nonsense. Where no program was
// run, or the caller gave up, there was no crash.
func (s *Sink) failedStart(ctx context.Context, err error) {
	var failed *startError
	if ctx.Err() == nil && errors.As(err, &failed) && failed.ran {
		s.crashes.count(time.Now(), err)
	}
}

// bury clears away after a process that has ended by itself.
func (s *Sink) bury(p *process) {
	fate := p.fate()
	p.end(false)
	if p.delivered.Load() || time.Since(p.started) > longLife {
		s.crashes.forget()
	} else {
		s.crashes.count(time.Now(), fate)
	}
	s.replace(nil)
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

// open opens the plug-in's sink.
func (p *process) open(ctx context.Context) (promised, error) {
	request := &pluginv1.OpenRequest{Settings: p.options.settings(), TimeoutMs: remaining(ctx)}
	response, err := p.sink.Open(ctx, request)
	switch {
	case err != nil && !p.alive():
		return promised{}, p.fate()
	case err != nil:
		return promised{}, fmt.Errorf("open the plug-in %s: %w", p.options.name(), said(err))
	case response.GetTrouble() != nil:
		trouble := outcomeFromWire(&pluginv1.Outcome{
			Result: pluginv1.Result_UNAVAILABLE, Reason: response.GetTrouble().GetReason(), Detail: response.GetTrouble().GetDetail(),
		})
		return promised{}, &sinks.OpenError{Reason: trouble.Reason, Detail: trouble.Detail}
	}
	return promiseOf(response), nil
}

// close asks the plug-in to close its sink; one that is gone has nothing open.
func (p *process) close(ctx context.Context) error {
	if !p.alive() {
		return nil
	}
	response, err := p.sink.Close(ctx, &pluginv1.CloseRequest{})
	if err != nil {
		return said(err)
	}
	if text := response.GetError(); text != "" {
		return errors.New(shorten(text, maxDetail))
	}
	return nil
}
