package kafka

import (
	"errors"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// meaning is what a broker's error says of a record batch. README.md has the
// table.
type meaning struct {
	result  sinks.Result
	reason  sinks.Reason
	moved   bool // it was not taken, and another try may find who takes it
	isolate bool // one record may be the cause: the batch goes again in smaller ones
}

var (
	elsewhere = meaning{result: sinks.Unavailable, reason: sinks.ReasonConnection, moved: true}
	perhaps   = meaning{result: sinks.Retry, reason: sinks.ReasonUnknown}
	noRight   = meaning{result: sinks.Unavailable, reason: sinks.ReasonAuth}
	notSetUp  = meaning{result: sinks.Unavailable, reason: sinks.ReasonConfig}
	oversized = meaning{result: sinks.Reject, reason: sinks.ReasonTooLarge, isolate: true}
	malformed = meaning{result: sinks.Reject, reason: sinks.ReasonInvalid, isolate: true}
	failed    = meaning{result: sinks.Retry, reason: sinks.ReasonServerError}
)

var meanings = map[kafkago.Error]meaning{
	kafkago.UnknownTopicOrPartition: elsewhere, // what the topic itself says comes from the next look at it
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

	kafkago.TopicAuthorizationFailed:   noRight,
	kafkago.ClusterAuthorizationFailed: noRight,
	kafkago.SASLAuthenticationFailed:   noRight,
	kafkago.UnsupportedSASLMechanism:   noRight,
	kafkago.IllegalSASLState:           noRight,

	kafkago.InvalidRequiredAcks:         notSetUp,
	kafkago.UnsupportedVersion:          notSetUp,
	kafkago.UnsupportedForMessageFormat: notSetUp,
	kafkago.UnsupportedCompressionType:  notSetUp,
	kafkago.InvalidReplicationFactor:    notSetUp,
	kafkago.InvalidPartitionNumber:      notSetUp,
	kafkago.InvalidConfiguration:        notSetUp,

	kafkago.MessageSizeTooLarge: oversized,
	kafkago.RecordListTooLarge:  oversized,
	kafkago.InvalidMessageSize:  oversized,

	kafkago.InvalidRecord:    malformed,
	kafkago.InvalidTimestamp: malformed,
	kafkago.InvalidTopic:     {result: sinks.Reject, reason: sinks.ReasonInvalid},
	kafkago.PolicyViolation:  {result: sinks.Reject, reason: sinks.ReasonRefused, isolate: true},

	kafkago.ThrottlingQuotaExceeded: {result: sinks.Unavailable, reason: sinks.ReasonThrottled},
}

// meant returns what a broker's error says. One that is not known may mean
// anything.
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
