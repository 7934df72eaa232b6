package relay

import "github.com/rowrelay/rowrelay/sinks"

// The meaning of an answer that does not depend on what happened before.

// isFinal says that no destination has a part in the rejection.
func isFinal(outcome *sinks.Outcome) bool {
	return outcome.Reason == sinks.ReasonInvalid || outcome.Reason == sinks.ReasonExhausted || outcome.Reason == sinks.ReasonCrash
}

func isUnanswered(outcome *sinks.Outcome) bool {
	return outcome.Result == sinks.Retry && (outcome.Reason == sinks.ReasonUnknown || outcome.Reason == sinks.ReasonTimeout)
}

// isUnmistakable says that the reason is one of a destination that is unavailable, whatever the message.
func isUnmistakable(outcome *sinks.Outcome) bool {
	switch outcome.Reason {
	case sinks.ReasonConnection, sinks.ReasonThrottled, sinks.ReasonAuth, sinks.ReasonConfig:
		return true
	}
	return false
}

// postponed says that the message's own destination can't take it now.
func postponed(outcome sinks.Outcome) bool {
	return outcome.Result == sinks.Unsent && outcome.RetryAfter > 0
}
