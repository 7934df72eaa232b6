package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// memory is how long the sink assumes that brokers remember a producer that has stopped
// writing. Brokers' producer.id.expiration.ms is one day by default. A broker that has
// forgotten a producer would write a repeated batch a second time.
const memory = time.Hour

// remembered reports whether the batch is so new that no broker can have forgotten its
// producer. Brokers count a producer's expiration time from the latest timestamp in the
// producer's last batch.
func (s *IdempotentSink) remembered(id batchID, messages []sinks.Message) bool {
	if s.options.CreatedTime {
		newest := slices.MaxFunc(messages, func(a, b sinks.Message) int { return a.CreatedAt.Compare(b.CreatedAt) })
		if time.Since(newest.CreatedAt) > memory {
			return false
		}
	}
	return time.Since(id.at) <= memory
}

// deliveryStatus is what the sink has found out about a planned batch.
type deliveryStatus int

const (
	absent  deliveryStatus = iota // not in the log, and it will not appear there
	newest                        // in the log, as its producer's last batch; perhaps only the leader has it
	present                       // in the log and acknowledged: its producer wrote another batch after it
)

// lookFor returns the outcomes of a batch that can't be sent again, for one of these
// reasons: messages are missing, because they were settled or the batch was never sent;
// the broker may no longer recognise the batch, because it is too old; or the broker has
// just refused the batch, but may have written it for an earlier Send.
func (s *IdempotentSink) lookFor(ctx context.Context, id batchID, messages []sinks.Message) ([]sinks.Outcome, int) {
	return s.outcomesByStatus(ctx, id, messages, sinks.Blocked(), wasThere(id))
}

// explain returns the outcomes of a batch for which the broker has just returned an
// error. If the batch is its producer's newest, the relay sends it again, and
// the broker answers that request when all replicas have the batch.
func (s *IdempotentSink) explain(ctx context.Context, id batchID, messages []sinks.Message, failure sinks.Outcome) ([]sinks.Outcome, int) {
	again := failure
	again.Reason = sinks.ReasonUnknown
	return s.outcomesByStatus(ctx, id, messages, failure, again)
}

// wasThere returns the outcome of a message that an earlier Send has written. Its offset
// is unknown.
func wasThere(id batchID) sinks.Outcome { return sinks.Ok(strconv.Itoa(id.to.partition) + "/?") }

// outcomesByStatus finds out whether a batch was written, and returns the outcomes of
// its messages. If it can't find out, it also returns the scope of the failure.
func (s *IdempotentSink) outcomesByStatus(ctx context.Context, id batchID, messages []sinks.Message, ifAbsent, ifNewest sinks.Outcome) ([]sinks.Outcome, int) {
	n, began := len(messages), time.Now()
	found, err := s.statusOf(ctx, id, messages)
	switch unfinished := (*searching)(nil); {
	case errors.As(err, &unfinished) && !errors.Is(ctx.Err(), context.Canceled):
		why := sinks.Fail(sinks.Unavailable, sinks.ReasonBusy, unfinished.Error())
		s.cluster.fails(id.to, began, why)
		return sinks.All(n, why), unsure
	case err != nil && (ctx.Err() != nil || !s.gone(ctx, id)):
		why, kind := s.troubled(ctx, err), whole
		if ofPartition := (*partitionError)(nil); errors.As(err, &ofPartition) && ctx.Err() == nil && !isRefusal(err) {
			s.cluster.fails(id.to, began, why)
			kind = unsure
		}
		return sinks.All(n, why), kind
	case err != nil, found == absent:
		return sinks.All(n, ifAbsent), whole
	case found == newest && ifNewest.Result != sinks.Delivered:
		return sinks.All(n, ifNewest), whole
	}
	s.identity.taken(id, messages[0].BatchRef.Size, 0)
	return sinks.All(n, wasThere(id)), whole
}

// statusOf asks the partition's leader for the last sequence number of the batch's
// producer. The log has all batches of the producer up to this number. If the leader
// doesn't know the producer, the batch was either never written, or written so long ago
// that only a search of the log can find it.
func (s *IdempotentSink) statusOf(ctx context.Context, id batchID, messages []sinks.Message) (deliveryStatus, error) {
	if id.cluster != s.cluster.name() {
		return absent, nil
	}
	leader, _, err := s.leader(ctx, id.to)
	if err != nil {
		return absent, err
	}
	last, known, err := s.lastSequence(ctx, leader, id.to, id.producer)
	switch {
	case err != nil:
		return absent, &partitionError{fmt.Errorf("describe the producers of %s/%d, which needs the right to READ the topic: %w", id.to.topic, id.to.partition, err)}
	case !known && s.remembered(id, messages):
		return absent, nil
	case !known:
		return s.search(ctx, leader, id)
	}
	end := id.base + int32(messages[0].BatchRef.Size) - 1
	switch {
	case last < end:
		return absent, nil
	case last == end:
		return newest, nil
	}
	return present, nil
}

// leader returns the address of a partition's leader, and the cached topic.
func (s *IdempotentSink) leader(ctx context.Context, p topicPartition) (string, *topic, error) {
	topics, err := s.topics(ctx, []string{p.topic})
	if err != nil {
		return "", nil, err
	}
	t := topics[p.topic]
	leader, trouble := s.leaderOf(t, p.partition)
	if trouble != nil {
		s.cluster.outdated(t)
		return "", nil, &partitionError{errors.New(trouble.Detail)}
	}
	return leader, t, nil
}

// partitionError is the error of a single partition: it has no leader, or its leader doesn't answer or answers with an error.
type partitionError struct{ err error }

func (e *partitionError) Error() string { return e.err.Error() }
func (e *partitionError) Unwrap() error { return e.err }

// The request DescribeProducers returns the producers of a partition, and the last
// sequence of each. kafka-go doesn't support it, and can't be extended, because its table
// of API keys is too short. The format is defined in
// https://kafka.apache.org/protocol#The_Messages_DescribeProducers.
const (
	describeProducers        = 61
	describeProducersVersion = 0
)

// lastSequence asks a partition's leader for the last sequence of a producer. The
// result known is false if the leader doesn't know the producer.
func (s *IdempotentSink) lastSequence(ctx context.Context, leader string, p topicPartition, producer int64) (last int32, known bool, err error) {
	err = s.brokers.stream(ctx, leader, describeProducers, describeProducersVersion, producersRequest(p), func(r *stream) error {
		last, known, err = readProducers(r, producer)
		return err
	})
	return last, known, err
}

func producersRequest(p topicPartition) []byte {
	body := binary.AppendUvarint(nil, 2) // one topic: compact arrays encode their length plus one
	body = append(binary.AppendUvarint(body, uint64(len(p.topic)+1)), p.topic...)
	body = binary.AppendUvarint(body, 2) // one partition
	body = binary.BigEndian.AppendUint32(body, uint32(p.partition))
	return append(body, 0, 0) // the topic and the request have no tagged fields
}

// readProducers parses the answer for one topic and partition.
func readProducers(r *stream, producer int64) (last int32, known bool, err error) {
	r.skip(4)               // throttle time
	r.uvarint()             // topics
	r.skip(r.uvarint() - 1) // topic
	r.uvarint()             // partitions
	r.skip(4)               // partition
	code := kafkago.Error(r.int16())
	r.skip(r.uvarint() - 1) // error message
	for left := r.uvarint() - 1; left > 0 && r.err == nil; left-- {
		id := r.int64()
		r.skip(4) // epoch
		sequence := r.int32()
		r.skip(8 + 4 + 8) // last timestamp, coordinator epoch, start offset of the transaction
		r.tags()
		if id == producer {
			last, known = sequence, true
		}
	}
	return last, known, r.failure(code)
}
