package kafka

import (
	"bytes"
	"context"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/rowrelay/rowrelay/sinks"
)

// verdict is the result of sending a record batch.
type verdict struct {
	outcome  sinks.Outcome         // the outcome of all records; not set if again is true
	offset   int64                 // the offset of the first record, if the batch was delivered
	rejected map[int]sinks.Outcome // the outcomes of refused records, by their position in the batch
	again    bool                  // the broker wrote no record; all records that are not in rejected must be sent again
	smaller  bool                  // the records must be sent again in smaller batches
	local    bool                  // only the partition failed, and no record was written
	ofTopic  bool                  // only the topic failed, and no record was written
}

// buffers is a pool of buffers for encoded record batches.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// produce sends records to a partition's leader. If it is certain that the batch was not
// written, and another broker might write it, produce tries again until the given time. If
// the partition has failed in earlier Sends, produce tries again at most once, without a
// pause.
func (s *Sink) produce(ctx context.Context, until time.Time, to topicPartition, records []record, from producer) verdict {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	encoded, err := encode((*buffer)[:0], records, compressions[s.options.Compression], from)
	if err != nil {
		return verdict{outcome: sinks.Fail(sinks.Retry, sinks.ReasonServerError, err.Error())}
	}
	*buffer = encoded
	if size := len(encoded) - prefixBytes; size > s.options.MaxMessageBytes {
		return refused(len(records), tooLarge(size, s.options.MaxMessageBytes))
	}
	began := until.Add(-s.options.LeaderTimeout)
	if before, _ := s.cluster.troubleOf(to); before.tries > 0 {
		until = time.Now().Add(time.Millisecond)
	}
	for tries := 0; ; tries++ {
		v, moved := s.attempt(ctx, until, to, encoded, len(records))
		if moved && pause(ctx, until, tries) {
			continue
		}
		switch {
		case v.local:
			s.cluster.fails(to, began, v.outcome)
		case v.outcome.Result == sinks.Delivered:
			s.cluster.works(to)
		}
		return v
	}
}

// attempt sends a record batch once. The result moved is true if the batch was not
// written and another broker might write it.
func (s *Sink) attempt(ctx context.Context, until time.Time, to topicPartition, encoded []byte, n int) (v verdict, moved bool) {
	topics, err := s.topics(ctx, []string{to.topic})
	if err != nil {
		return verdict{outcome: s.troubled(ctx, err)}, isConnection(err)
	}
	t := topics[to.topic]
	defer func() {
		if r := v.outcome.Result; !v.again && (r == sinks.Retry || r == sinks.Unavailable) {
			s.cluster.outdated(t)
		}
	}()
	leader, trouble := s.leaderOf(t, to.partition)
	if trouble != nil {
		return verdict{outcome: *trouble, local: t.err == nil, ofTopic: t.err != nil}, trouble.Reason == sinks.ReasonConnection
	}
	if wait := s.cluster.restLeft(leader); wait > 0 && !sleep(ctx, until, wait) { // the broker asked for a pause
		if ctx.Err() != nil {
			return verdict{outcome: sinks.Cancelled()}, false
		}
		o := sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, "the broker asked for a pause")
		o.RetryAfter = wait
		return verdict{outcome: o}, false
	}
	start := time.Now()
	answer, err := s.client.RawProduce(ctx, &kafkago.RawProduceRequest{
		Addr: kafkago.TCP(leader), Topic: to.topic, Partition: to.partition, RequiredAcks: kafkago.RequireAll,
		RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(encoded)},
	})
	if err != nil {
		late := ctx.Err() != nil || time.Since(start) >= s.options.RequestTimeout
		moved := isConnection(err) && !mayHaveArrived(err)
		return verdict{outcome: s.noAnswer(ctx, err, late), local: moved && ctx.Err() == nil}, moved
	}
	s.cluster.rest(leader, answer.Throttle)
	return s.answered(answer, n)
}

// leaderOf returns the address of a partition's leader. If the partition has no
// leader, it returns the outcome for the partition's messages instead.
func (s *Sink) leaderOf(t *topic, partition int) (string, *sinks.Outcome) {
	var trouble sinks.Outcome
	switch {
	case t.err != nil:
		trouble = s.topicTrouble(t)
	case partition >= len(t.leaders): // the topic was deleted and created again
		trouble = sinks.Postpone(sinks.ReasonBusy, "the topic "+t.name+" has fewer partitions now: another partition will be chosen", firstPause)
	case t.leaders[partition] == "":
		trouble = sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "a partition of the topic "+t.name+" has no leader")
	default:
		return t.leaders[partition], nil
	}
	return "", &trouble
}
