package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// answered converts a broker's answer to a batch of n records into a verdict, and
// reports whether another broker may accept the batch.
func (s *Sink) answered(answer *kafkago.ProduceResponse, n int) (verdict, bool) {
	if answer.Error == nil {
		return verdict{outcome: sinks.Ok(""), offset: answer.BaseOffset}, false
	}
	m := meant(answer.Error)
	o := sinks.Fail(m.result, m.reason, s.sanitize(answer.Error))
	switch {
	case len(answer.RecordErrors) > 0 && m.result == sinks.Reject:
		return s.someRefused(answer, n, o), false
	case m.isolate:
		return refused(n, o), false
	}
	if m.ofTopic {
		o = s.ofTopic(m.reason, o.Detail)
	}
	return verdict{outcome: o, local: m.moved, ofTopic: m.ofTopic}, m.moved
}

// someRefused returns the verdict for an answer that lists the refused records.
func (s *Sink) someRefused(answer *kafkago.ProduceResponse, n int, o sinks.Outcome) verdict {
	v := verdict{rejected: map[int]sinks.Outcome{}, again: true}
	for place, err := range answer.RecordErrors {
		said := o
		if err.Error() != "" {
			said.Detail = s.sanitize(err)
		}
		if place >= 0 && place < n {
			v.rejected[place] = said
		}
	}
	if len(v.rejected) == 0 {
		return refused(n, o)
	}
	return v
}

// refused returns the verdict for a batch of n records in which the broker refuses
// a record without saying which one.
func refused(n int, o sinks.Outcome) verdict {
	if n == 1 {
		return verdict{outcome: o}
	}
	return verdict{again: true, smaller: true}
}

func tooLarge(size, most int) sinks.Outcome {
	return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, fmt.Sprintf("%d bytes exceed max_message_bytes (%d)", size, most))
}

// noAnswer returns the outcome of a request without an answer. The argument late
// is true if the request ran out of time.
func (s *Sink) noAnswer(ctx context.Context, err error, late bool) sinks.Outcome {
	switch {
	case mayHaveArrived(err) && late:
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, s.sanitize(err))
	case mayHaveArrived(err):
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, s.sanitize(err))
	}
	return s.troubled(ctx, err)
}

// troubled returns the outcome for an error that prevented sending.
func (s *Sink) troubled(ctx context.Context, err error) sinks.Outcome {
	if ctx.Err() != nil {
		return sinks.Cancelled()
	}
	reason := sinks.ReasonConnection
	if code := kafkago.Unknown; errors.As(err, &code) && meant(code).result == sinks.Unavailable {
		reason = meant(code).reason
	}
	if header := (tls.RecordHeaderError{}); errors.As(err, &header) {
		reason = sinks.ReasonConfig
	} else if isRefusal(err) {
		reason = sinks.ReasonAuth
	}
	return sinks.Fail(sinks.Unavailable, reason, s.sanitize(err))
}

// isRefusal reports whether a login was refused, or one side doesn't trust the
// other's certificate.
func isRefusal(err error) bool {
	login, verification := (*loginError)(nil), (*tls.CertificateVerificationError)(nil)
	return errors.As(err, &login) || errors.As(err, &verification) || strings.Contains(err.Error(), "remote error: tls")
}

// isConnection reports whether err is an error of the connection, but not a refusal (see
// isRefusal).
func isConnection(err error) bool {
	broken := (*wireError)(nil)
	return errors.As(err, &broken) && !isRefusal(err)
}

// openError converts an outcome to the error of Open.
func (s *Sink) openError(trouble sinks.Outcome) error {
	reason := trouble.Reason
	if trouble.Result != sinks.Unavailable {
		reason = sinks.ReasonConnection
	}
	return &sinks.OpenError{Reason: reason, Detail: "open the kafka sink: " + trouble.Detail}
}

// sanitize returns the text of an error without secrets, printable, and at most 300 bytes long.
func (s *Sink) sanitize(err error) string {
	held := s.brokers.held()
	return held.redactor.Present(held.previous.Redact(err.Error()), 300)
}

// meaning is what a broker's error code means for a record batch. A table in
// README.md lists the errors and their outcomes.
type meaning struct {
	result  sinks.Result
	reason  sinks.Reason
	moved   bool // the batch was not written; another try may find a broker that writes it
	isolate bool // a single record may be the cause: send the batch again in smaller batches
	ofTopic bool // only the topic is affected
}

var (
	elsewhere = meaning{result: sinks.Unavailable, reason: sinks.ReasonConnection, moved: true}
	perhaps   = meaning{result: sinks.Retry, reason: sinks.ReasonUnknown}
	noRight   = meaning{result: sinks.Unavailable, reason: sinks.ReasonAuth}
	notToIt   = meaning{result: sinks.Unavailable, reason: sinks.ReasonAuth, ofTopic: true}
	notInIt   = meaning{result: sinks.Unavailable, reason: sinks.ReasonConfig, ofTopic: true}
	notSetUp  = meaning{result: sinks.Unavailable, reason: sinks.ReasonConfig}
	oversized = meaning{result: sinks.Reject, reason: sinks.ReasonTooLarge, isolate: true}
	malformed = meaning{result: sinks.Reject, reason: sinks.ReasonInvalid, isolate: true}
	failed    = meaning{result: sinks.Retry, reason: sinks.ReasonServerError}
)

var meanings = map[kafkago.Error]meaning{
	kafkago.UnknownTopicOrPartition: elsewhere, // the next fetch of the topic finds out whether it exists
	kafkago.LeaderNotAvailable:      elsewhere,
	kafkago.NotLeaderForPartition:   elsewhere,
	kafkago.BrokerNotAvailable:      elsewhere,
	kafkago.ReplicaNotAvailable:     elsewhere,
	kafkago.NotEnoughReplicas:       elsewhere,
	kafkago.KafkaStorageError:       elsewhere,
	kafkago.ListenerNotFound:        elsewhere,
	kafkago.FencedLeaderEpoch:       elsewhere,
	kafkago.UnknownLeaderEpoch:      elsewhere,
	kafkago.UnknownTopicID:          elsewhere,
	kafkago.InconsistentTopicID:     elsewhere,

	kafkago.RequestTimedOut:              perhaps,
	kafkago.NotEnoughReplicasAfterAppend: perhaps,
	kafkago.NetworkException:             perhaps,

	kafkago.TopicAuthorizationFailed:   notToIt,
	kafkago.ClusterAuthorizationFailed: noRight,
	kafkago.SASLAuthenticationFailed:   noRight,
	kafkago.UnsupportedSASLMechanism:   noRight,
	kafkago.IllegalSASLState:           noRight,

	kafkago.InvalidRequiredAcks:         notSetUp,
	kafkago.UnsupportedVersion:          notSetUp,
	kafkago.UnsupportedForMessageFormat: notInIt,
	kafkago.UnsupportedCompressionType:  notInIt,
	kafkago.InvalidReplicationFactor:    notInIt,
	kafkago.InvalidPartitionNumber:      notInIt,
	kafkago.InvalidConfiguration:        notInIt,

	kafkago.MessageSizeTooLarge: oversized,
	kafkago.RecordListTooLarge:  oversized,
	kafkago.InvalidMessageSize:  oversized,

	kafkago.InvalidRecord:    malformed,
	kafkago.InvalidTimestamp: malformed,
	kafkago.InvalidTopic:     {result: sinks.Reject, reason: sinks.ReasonInvalid},
	kafkago.PolicyViolation:  {result: sinks.Reject, reason: sinks.ReasonRefused, isolate: true},

	kafkago.ThrottlingQuotaExceeded: {result: sinks.Unavailable, reason: sinks.ReasonThrottled},
}

// meant returns the meaning of a broker's error. For an unknown error, it returns failed.
func meant(err error) meaning {
	code := kafkago.Unknown
	if !errors.As(err, &code) {
		return failed
	}
	if m, known := meanings[code]; known {
		return m
	}
	return failed
}
