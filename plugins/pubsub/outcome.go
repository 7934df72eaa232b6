package main

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// meaning describes the effect of an error on the messages of a request.
type meaning struct {
	result sinks.Result
	reason sinks.Reason
	local  bool // only this topic is affected
	single bool // one message of the request may be the cause
}

var meanings = map[codes.Code]meaning{
	codes.NotFound:           {result: sinks.Unavailable, reason: sinks.ReasonConfig, local: true},
	codes.FailedPrecondition: {result: sinks.Unavailable, reason: sinks.ReasonConfig, local: true}, // such as a disabled KMS key
	codes.PermissionDenied:   {result: sinks.Unavailable, reason: sinks.ReasonAuth, local: true},
	codes.Unauthenticated:    {result: sinks.Unavailable, reason: sinks.ReasonAuth},
	codes.ResourceExhausted:  {result: sinks.Unavailable, reason: sinks.ReasonThrottled},
	codes.Unavailable:        {result: sinks.Unavailable, reason: sinks.ReasonConnection},
	codes.Unimplemented:      {result: sinks.Unavailable, reason: sinks.ReasonConfig},
	codes.InvalidArgument:    {result: sinks.Reject, reason: sinks.ReasonInvalid, single: true},
	codes.OutOfRange:         {result: sinks.Reject, reason: sinks.ReasonRefused, single: true},
	codes.DeadlineExceeded:   {result: sinks.Retry, reason: sinks.ReasonTimeout},
	codes.Canceled:           {result: sinks.Retry, reason: sinks.ReasonTimeout},
	codes.Unknown:            {result: sinks.Retry, reason: sinks.ReasonUnknown},
}

// meant returns the meaning of an error. An unknown code counts as a failure of the service.
func meant(ctx context.Context, err error) meaning {
	if ctx.Err() != nil {
		return meanings[codes.DeadlineExceeded]
	}
	if m, known := meanings[status.Code(err)]; known {
		return m
	}
	return meaning{result: sinks.Retry, reason: sinks.ReasonServerError}
}

// outcome returns the outcome of a message. If messages choose the topic, and only this message's topic is affected, the
// message is postponed.
func (s *sink) outcome(m *sinks.Message, what meaning, detail string) sinks.Outcome {
	if what.local && s.topic.Places() > 0 {
		reason := what.reason
		if reason == sinks.ReasonConfig {
			reason = sinks.ReasonUnroutable
		}
		return sinks.Postpone(reason, detail, sinks.WaitByAge(m.CreatedAt))
	}
	return sinks.Fail(what.result, what.reason, detail)
}

// present shortens a text of the service or the client to one printable line for an outcome. The text contains no
// secret, because tokens are only in the metadata of requests.
func present(text string) string { return settings.Redactor{}.Present(text, 500) }
