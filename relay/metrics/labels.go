package metrics

import (
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// other stands for what a sink (a plug-in, perhaps) made up: a label's values
// must stay few.
const other = "other"

var results = []sinks.Result{sinks.Retry, sinks.Delivered, sinks.Reject, sinks.Unavailable, sinks.Unsent}

var reasons = []sinks.Reason{
	sinks.ReasonNone, sinks.ReasonUnknown, sinks.ReasonTimeout, sinks.ReasonServerError, sinks.ReasonHandlerError,
	sinks.ReasonPanic, sinks.ReasonBusy, sinks.ReasonTooLarge, sinks.ReasonInvalid, sinks.ReasonRefused,
	sinks.ReasonUnroutable, sinks.ReasonConnection, sinks.ReasonThrottled, sinks.ReasonAuth, sinks.ReasonConfig,
	sinks.ReasonCancelled, sinks.ReasonNeighbour, sinks.ReasonExhausted, sinks.ReasonCrash,
}

func resultLabel(result sinks.Result) string {
	if slices.Contains(results, result) {
		return result.String()
	}
	return other
}

func reasonLabel(reason sinks.Reason) string {
	if slices.Contains(reasons, reason) {
		return string(reason)
	}
	return other
}
