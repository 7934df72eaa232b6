package inproc

import (
	"errors"

	"github.com/rowrelay/rowrelay/sinks"
)

// recovered runs f and makes an error of its panic.
func recovered(f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &verdict{result: sinks.Retry, reason: sinks.ReasonPanic, err: errors.New(sinks.DescribePanic(cause, "/inproc.recovered"))}
		}
	}()
	return f()
}
