package inproc

import "slices"

// Middleware wraps a handler with code that runs for every message, such as logging,
// metrics, tracing or values in the context. The wrapped handler returns the original
// handler's error or another error. It need not recover from panics: a panic counts as
// a retry.
type Middleware func(next Handler) Handler

// Wrap returns the handler wrapped in the middleware. The first middleware is the
// outermost: it receives a message first and its error last. Nil middleware is ignored.
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
