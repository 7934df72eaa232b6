package inproc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// verdict is an error that determines the outcome of the message.
type verdict struct {
	result sinks.Result
	reason sinks.Reason
	err    error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// Permanent marks an error that every further attempt would return too. The relay parks
// the message, and then sends the next message of its key unless the sink's option OnPark
// is relay.HoldKey. If relay.SinkOptions.JudgeAloneAfter is set, or if messages of many
// keys fail, the relay doesn't park the message immediately, but tries it again first.
// Permanent(nil) is nil.
func Permanent(err error) error { return judged(sinks.Reject, sinks.ReasonRefused, err) }

// Unavailable marks an error that the message did not cause: something that all messages need, such as a server, is
// unavailable. The relay pauses the sink, and sends the message again without charging an attempt. Wrap the error in
// RetryAfter to set the pause. Unavailable(nil) is nil.
func Unavailable(err error) error { return judged(sinks.Unavailable, sinks.ReasonConnection, err) }

func judged(result sinks.Result, reason sinks.Reason, err error) error {
	if err == nil {
		return nil
	}
	return &verdict{result: result, reason: reason, err: err}
}

// later is an error with a minimum wait before the next attempt.
type later struct {
	wait time.Duration
	err  error
}

func (l *later) Error() string { return l.err.Error() }
func (l *later) Unwrap() error { return l.err }

// RetryAfter marks an error with the minimum wait before the next attempt. With a wait of
// 0 or less, the relay's back-off applies. RetryAfter(nil, wait) is nil.
func RetryAfter(err error, wait time.Duration) error {
	if err == nil {
		return nil
	}
	return &later{wait: max(wait, 0), err: err}
}

// withStack is an error that prints its stack trace with %+v.
type withStack interface {
	error
	fmt.Formatter
}

// outcomeOf converts the error of a handler to an outcome.
func outcomeOf(ctx context.Context, err error) sinks.Outcome {
	if err == nil {
		return sinks.Ok("")
	}
	text := err.Error()
	if traced, ok := errors.AsType[withStack](err); ok { // such as the errors of github.com/pkg/errors
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

// panicked is a panic that was converted to an error.
type panicked struct {
	text string
	with error // the panic's value, if it is an error
}

func (p *panicked) Error() string { return p.text }
func (p *panicked) Unwrap() error { return p.with }

// recovered runs f and converts a panic to an error.
func recovered(f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			with, _ := cause.(error)
			err = &verdict{result: sinks.Retry, reason: sinks.ReasonPanic, err: &panicked{sinks.DescribePanic(cause, "/inproc.recovered"), with}}
		}
	}()
	return f()
}
