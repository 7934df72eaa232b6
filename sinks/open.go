package sinks

import (
	"errors"
)

// OpenError is an error of Open that says why the destination can't be used, in
// the word that metrics and logs show. Any other error counts as
// [ReasonConnection].
type OpenError struct {
	Reason Reason // one of those of Unavailable: connection, throttled, auth or config
	Detail string // for the operator, without secrets
}

// Error returns the detail.
func (e *OpenError) Error() string { return e.Detail }

// Unopened returns the Outcome that an error of Open stands for.
func Unopened(err error) Outcome {
	var known *OpenError
	if errors.As(err, &known) {
		return Fail(Unavailable, known.Reason, err.Error())
	}
	return Fail(Unavailable, ReasonConnection, err.Error())
}
