package rabbitmq

import (
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
)

func blockedError(reason string) error {
	return &sinks.OpenError{Reason: sinks.ReasonThrottled, Detail: "the broker has blocked the connection: " + reason}
}

// unavailable converts any error to an OpenError.
func (s *Sink) unavailable(err error) *sinks.OpenError {
	if known := (*sinks.OpenError)(nil); errors.As(err, &known) {
		return known
	}
	return &sinks.OpenError{Reason: reasonOf(err), Detail: s.sanitize(err.Error())}
}

func reasonOf(err error) sinks.Reason {
	if answer := (*amqp.Error)(nil); errors.As(err, &answer) {
		return reasonOfAnswer(answer)
	}
	if text := err.Error(); strings.Contains(text, "tls: ") || strings.Contains(text, "x509: ") { // the prefixes of all TLS errors
		return sinks.ReasonConfig
	}
	return sinks.ReasonConnection
}

// reasonOfAnswer returns the reason for the error with which the broker closed a
// connection or a channel. It is not used for errors that a message has caused.
func reasonOfAnswer(answer *amqp.Error) sinks.Reason {
	switch answer.Code {
	case amqp.AccessRefused:
		return sinks.ReasonAuth
	case amqp.NotAllowed:
		return reasonNotAllowed(answer.Reason)
	case amqp.NotFound, amqp.PreconditionFailed, amqp.ResourceLocked, amqp.CommandInvalid:
		return sinks.ReasonConfig
	}
	if strings.Contains(answer.Reason, "tls: ") { // the library reports a TLS error as a frame that could not be read
		return sinks.ReasonConfig
	}
	return sinks.ReasonConnection
}

// reasonNotAllowed returns the reason for RabbitMQ's errors about a virtual host, which all have the code NotAllowed.
func reasonNotAllowed(text string) sinks.Reason {
	switch {
	case strings.Contains(text, "limit"):
		return sinks.ReasonThrottled
	case strings.Contains(text, "refused"):
		return sinks.ReasonAuth
	}
	return sinks.ReasonConfig
}

// tellsMore reports whether the first error is more useful to an operator than the second,
// because only the second is a plain connection error.
func tellsMore(err, than error) bool {
	return reasonOf(err) != sinks.ReasonConnection && reasonOf(than) == sinks.ReasonConnection
}

// refused returns the outcome of a message that was the only one in flight on its
// channel when the broker closed the channel. If the cause affects all messages,
// the sink is unavailable.
func (s *Sink) refused(answer *amqp.Error) sinks.Outcome {
	detail := s.sanitize(fmt.Sprintf("the broker closed the channel: %d %s", answer.Code, answer.Reason))
	everywhere := s.exchange.Places() == 0 && (!strings.Contains(answer.Reason, "topic '") || s.routingKey.Places() == 0)
	switch {
	case answer.Code == amqp.NotFound && everywhere:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, detail)
	case answer.Code == amqp.NotFound:
		return sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, detail)
	case answer.Code == amqp.AccessRefused && everywhere:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, detail)
	case answer.Code == amqp.AccessRefused:
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, detail)
	case answer.Code == amqp.ContentTooLarge, strings.Contains(answer.Reason, "message size"):
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, detail)
	case answer.Code == amqp.PreconditionFailed:
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, detail)
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonServerError, detail)
}

// isException reports whether the broker closed a channel because of a message, and
// not because the connection was lost or the broker is stopping.
func isException(answer *amqp.Error) bool {
	return answer != nil && answer.Server && answer.Code != amqp.ConnectionForced
}

// sanitize returns a text without secrets, printable, and at most 500 bytes long.
func (s *Sink) sanitize(text string) string {
	held := s.secrets.Load()
	return held.redactor.Present(held.previous.Redact(text), 500)
}
