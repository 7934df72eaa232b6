package inproc

import "slices"

// Middleware makes a handler of another one, for what goes around the handling of every
// message: a line in a log, a measurement, a trace, values in the context. It hands on the
// error, or another one. A panic goes through it, and is a retry in the end.
type Middleware func(next Handler) Handler

// Wrap returns the handler inside the middleware, of which the first is the outermost: it
// sees a message first and its error last. A nil middleware is passed over.
func Wrap(handler Handler, middleware ...Middleware) Handler {
	if handler == nil {
		return nil
	}
	for _, around := range slices.Backward(middleware) {
		if around != nil {
			handler = around(handler)
		}
	}
	return handler
}
