package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/sinks"
)

// Errors of JetStream that the client has no names for.
const (
	accountResources   jetstream.ErrorCode = 10002
	clusterUnavailable jetstream.ErrorCode = 10008
	clusterNoLeader    jetstream.ErrorCode = 10009
	serverResources    jetstream.ErrorCode = 10023
	memoryResources    jetstream.ErrorCode = 10028
	noAccount          jetstream.ErrorCode = 10035
	storageResources   jetstream.ErrorCode = 10047
	otherStream        jetstream.ErrorCode = 10060
	storeFailed        jetstream.ErrorCode = 10077
	headerTooLarge     jetstream.ErrorCode = 10097
	streamSealed       jetstream.ErrorCode = 10109
	streamOffline      jetstream.ErrorCode = 10118
	duplicateInProcess jetstream.ErrorCode = 10158
	lastNotReady       jetstream.ErrorCode = 10163
	tooManyRequests    jetstream.ErrorCode = 10167
	streamOfflineWhy   jetstream.ErrorCode = 10194
)

// opening returns the error of Open with its reason.
func opening(detail string, err error) error {
	return &sinks.OpenError{Reason: reasonToOpen(err), Detail: detail}
}

func reasonToOpen(err error) sinks.Reason {
	var refused *jetstream.APIError
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrPermissionViolation):
		return sinks.ReasonAuth
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrNkeysNotSupported),
		errors.As(err, &certificate), errors.As(err, &header), errors.As(err, &unknown):
		return sinks.ReasonConfig
	case errors.As(err, &refused):
		if o := refusal(&sinks.Message{}, refused); o.Result == sinks.Unavailable {
			return o.Reason
		}
		return sinks.ReasonConfig // the stream can't be created
	}
	return sinks.ReasonConnection
}

// failed returns the outcome of a message if storing it failed with err. The stream may have stored the
// message even if the acknowledgement is missing.
func (s *sink) failed(ctx context.Context, link *link, m *sinks.Message, message *nats.Msg, err error) sinks.Outcome {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, err.Error())
	case errors.Is(err, nats.ErrPermissionViolation):
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, err.Error())
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return s.unanswered(ctx, link, m, message.Subject)
	case errors.As(err, &refused) && refused.ErrorCode == storeFailed && s.neverFits(link, message):
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, "the message is larger than the stream may be: "+err.Error())
	case errors.As(err, &refused):
		return refusal(m, refused)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrTimeout), ctx.Err() != nil:
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, err.Error())
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, err.Error())
}

// unanswered returns the outcome of a message if no stream has answered for the
// message's subject.
func (s *sink) unanswered(ctx context.Context, link *link, m *sinks.Message, subject string) sinks.Outcome {
	var stream jetstream.Stream
	err := link.await(ctx, apiSubjects, func(ctx context.Context) (err error) {
		stream, err = link.js.Stream(ctx, s.name)
		return err
	})
	switch {
	case err != nil:
		return sinks.Fail(sinks.Unavailable, reasonToOpen(err), fmt.Sprintf("find the stream %s: %v", s.name, err))
	case listens(stream.CachedInfo().Config.Subjects, subject):
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, fmt.Sprintf("the stream %s doesn't answer: it may have no leader", s.name))
	}
	return sinks.Postpone(sinks.ReasonUnroutable, fmt.Sprintf("the stream %s doesn't have the subject %s", s.name, subject), sinks.WaitByAge(m.CreatedAt))
}

// listens reports whether one of the stream's subjects, which may have wildcards, matches the subject.
func listens(patterns []string, subject string) bool {
	for _, pattern := range patterns {
		if matches(strings.Split(pattern, "."), strings.Split(subject, ".")) {
			return true
		}
	}
	return false
}

func matches(pattern, subject []string) bool {
	for i, part := range pattern {
		switch {
		case part == ">":
			return len(subject) > i
		case i >= len(subject) || part != "*" && part != subject[i]:
			return false
		}
	}
	return len(pattern) == len(subject)
}

// neverFits reports whether the message exceeds the stream's MaxBytes, so that even an empty stream can't store it.
func (s *sink) neverFits(link *link, message *nats.Msg) bool {
	limit := link.stream.CachedInfo().Config.MaxBytes
	return limit > 0 && int64(len(message.Data)) >= limit
}

// refusal returns the outcome of a message that JetStream refused with err. The stream has not stored
// the message.
func refusal(m *sinks.Message, err *jetstream.APIError) sinks.Outcome {
	switch err.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, headerTooLarge:
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, err.Error())
	case otherStream:
		return sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, err.Error())
	case storeFailed:
		switch {
		case strings.Contains(err.Description, "per subject"):
			return sinks.Postpone(sinks.ReasonBusy, err.Error(), sinks.WaitByAge(m.CreatedAt))
		case strings.Contains(err.Description, "exceeded"): // the stream is full, and refuses new messages
			return sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, err.Error())
		}
	case accountResources, serverResources, memoryResources, storageResources:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, err.Error())
	case clusterUnavailable, clusterNoLeader, streamOffline, streamOfflineWhy:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, err.Error())
	case jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount, noAccount, streamSealed:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, err.Error())
	case duplicateInProcess, lastNotReady, tooManyRequests, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return sinks.Postpone(sinks.ReasonBusy, err.Error(), sinks.WaitByAge(m.CreatedAt))
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonServerError, err.Error())
}
