package inproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// verdict is an error that says what is to become of the message.
type verdict struct {
	result sinks.Result
	reason sinks.Reason
	err    error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// Permanent marks an error as one that no other attempt will cure: the message
// is parked, and its key goes on without it. That is at once, unless
// relay.SinkOptions.JudgeAloneAfter is set, or the messages of so many keys fail that the
// relay takes it for a trouble of all messages. Nil stays nil.
func Permanent(err error) error { return judged(sinks.Reject, sinks.ReasonRefused, err) }

// Unavailable marks an error as the fault of something that the handler needs,
// and not of the message: the sink is paused, and the message is handed over
// again without having been charged an attempt. RetryAfter around it says how
// long the pause should be. Nil stays nil.
func Unavailable(err error) error { return judged(sinks.Unavailable, sinks.ReasonConnection, err) }

func judged(result sinks.Result, reason sinks.Reason, err error) error {
	if err == nil {
		return nil
	}
	return &verdict{result: result, reason: reason, err: err}
}

// later is an error with a wish about the next attempt.
type later struct {
	wait time.Duration
	err  error
}

func (l *later) Error() string { return l.err.Error() }
func (l *later) Unwrap() error { return l.err }

// RetryAfter marks an error with the time that the next attempt should wait for
// at least. A wait of 0 or less leaves it to the relay's back-off. Nil stays
// nil.
func RetryAfter(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return &later{wait: max(wait, 0), err: err}
}

// withStack is an error that shows where it happened when it is formatted with %+v.
type withStack interface {
	error
	fmt.Formatter
}

// outcomeOf turns what a handler returned into an outcome.
func outcomeOf(ctx context.Context, err error) sinks.Outcome {
	if err == nil {
		return sinks.Ok("")
	}
	text := err.Error()
	if traced, ok := errors.AsType[withStack](err); ok { // as of github.com/pkg/errors
		if stack := fmt.Sprintf("%+v", traced); strings.Contains(stack, "\n") {
			text += "\n" + stack
		}
	}
	outcome := sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, strings.ToValidUTF8(text, "\uFFFD"))
	outcome.Err = err
	if ctx.Err() != nil {
		outcome.Reason = sinks.ReasonTimeout
	}
	if v, ok := errors.AsType[*verdict](err); ok {
		outcome.Result, outcome.Reason = v.result, v.reason
	}
	if l, ok := errors.AsType[*later](err); ok && outcome.Result != sinks.Reject {
		outcome.RetryAfter = l.wait
	}
	return outcome
}

// panicked is a panic as an error.
type panicked struct {
	text string
	with error // nil if it was something else
}

func (p *panicked) Error() string { return p.text }
func (p *panicked) Unwrap() error { return p.with }

// recovered runs f and makes an error of its panic.
func recovered(f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			with, _ := cause.(error)
			err = &verdict{result: sinks.Retry, reason: sinks.ReasonPanic, err: &panicked{sinks.DescribePanic(cause, "/inproc.recovered"), with}}
		}
	}()
	return f()
}
