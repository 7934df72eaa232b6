package relay

import "github.com/rowrelay/rowrelay/sinks"

// This file classifies the answers of sinks. The class of an answer doesn't depend on earlier answers.

// isFinal reports whether the message itself is certainly the cause of its rejection.
func isFinal(outcome *sinks.Outcome) bool {
	return outcome.Reason == sinks.ReasonInvalid || outcome.Reason == sinks.ReasonExhausted || outcome.Reason == sinks.ReasonCrash
}

// isUnanswered reports whether the destination gave no answer. The destination may still have received the message.
func isUnanswered(outcome *sinks.Outcome) bool {
	return outcome.Result == sinks.Retry && (outcome.Reason == sinks.ReasonUnknown || outcome.Reason == sinks.ReasonTimeout)
}

// isUnmistakable reports whether the reason shows that the destination is unavailable for every message.
func isUnmistakable(outcome *sinks.Outcome) bool {
	switch outcome.Reason {
	case sinks.ReasonConnection, sinks.ReasonThrottled, sinks.ReasonAuth, sinks.ReasonConfig:
		return true
	}
	return false
}

// postponed reports whether the sink did not send the message because the message's own destination is unavailable.
func postponed(outcome sinks.Outcome) bool {
	return outcome.Result == sinks.Unsent && outcome.RetryAfter > 0
}
