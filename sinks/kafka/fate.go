package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay/sinks"
)

// memory is how long brokers are relied on to remember a producer that writes no
// more: their producer.id.expiration.ms is a day unless told otherwise. What one
// has forgotten it would take in again.
const memory = time.Hour

// fate is what became of an exact batch.
type fate int

const (
	absent  fate = iota // it is not in the log, and won't be
	newest              // it is, whole, the last one of its producer: so far the leader alone may have it
	present             // it is, and acknowledged: its producer went on after it
)

// lookFor says what became of a batch that can't be sent as it was: rows of it
// are gone, because they were settled or never sent; or it is so old that the
// broker may no longer recognise it.
func (s *IdempotentSink) lookFor(ctx context.Context, st stamp, messages []sinks.Message) []sinks.Outcome {
	return s.fated(ctx, st, messages, neighbour, wasThere(st))
}

// explain says what became of a batch that the broker has just answered with an
// error. If it is the newest it goes again: the answer to that comes when all
// replicas have it.
func (s *IdempotentSink) explain(ctx context.Context, st stamp, messages []sinks.Message, failure sinks.Outcome) []sinks.Outcome {
	again := failure
	again.Reason = sinks.ReasonUnknown
	return s.fated(ctx, st, messages, failure, again)
}

// wasThere is the outcome of a message that the broker has from before; where,
// it doesn't say.
func wasThere(st stamp) sinks.Outcome { return sinks.Ok(strconv.Itoa(st.to.partition) + "/?") }

func (s *IdempotentSink) fated(ctx context.Context, st stamp, messages []sinks.Message, ifAbsent, ifNewest sinks.Outcome) []sinks.Outcome {
	n := len(messages)
	found, err := s.fateOf(ctx, st, messages)
	switch {
	case err != nil:
		return sinks.All(n, s.troubled(ctx, err))
	case found == absent:
		return sinks.All(n, ifAbsent)
	case found == newest && ifNewest.Result != sinks.Delivered:
		return sinks.All(n, ifNewest)
	}
	s.identity.taken(st, messages[0].Ticket.Size, 0)
	return sinks.All(n, wasThere(st))
}

// fateOf asks the partition's leader how far it has come with the batch's
// producer, whose batches it has without a gap. Of a producer that it doesn't
// know, or no longer, the log itself tells.
func (s *IdempotentSink) fateOf(ctx context.Context, st stamp, messages []sinks.Message) (fate, error) {
	if st.cluster != s.cluster.name() {
		return absent, nil
	}
	leader, err := s.leader(ctx, st.to)
	if err != nil {
		return absent, err
	}
	last, known, err := s.lastSequence(ctx, leader, st.to, st.producer)
	switch {
	case err != nil:
		return absent, fmt.Errorf("ask for the producers of %s/%d, which needs the right to READ it: %w", st.to.topic, st.to.partition, err)
	case !known:
		return s.searchLog(ctx, leader, st, messages)
	}
	end := st.base + int32(messages[0].Ticket.Size) - 1
	switch {
	case last < end:
		return absent, nil
	case last == end:
		return newest, nil
	}
	return present, nil
}

func (s *IdempotentSink) leader(ctx context.Context, p place) (string, error) {
	topics, err := s.topics(ctx, []string{p.topic})
	if err != nil {
		return "", err
	}
	leader, trouble := s.leaderOf(topics[p.topic], p.partition)
	if trouble != nil {
		s.cluster.outdated(topics[p.topic])
		return "", errors.New(trouble.Detail)
	}
	return leader, nil
}

// searchLog looks for the batch's first message: the batch is there as a whole
// or not at all.
func (s *IdempotentSink) searchLog(ctx context.Context, leader string, st stamp, messages []sinks.Message) (fate, error) {
	ids := make(map[string]bool, len(messages))
	for i := range messages {
		ids[messages[i].ID] = true
	}
	for offset, end := st.end, st.end+1; offset < end; {
		answer, err := s.client.Fetch(ctx, &kafkago.FetchRequest{
			Addr: kafkago.TCP(leader), Topic: st.to.topic, Partition: st.to.partition, Offset: offset,
			MinBytes: 1, MaxBytes: fetchBytes, MaxWait: time.Second, IsolationLevel: kafkago.ReadUncommitted,
		})
		if err == nil {
			err = answer.Error
		}
		if errors.Is(err, kafkago.OffsetOutOfRange) {
			return absent, nil // the topic was made anew, or has deleted that part
		}
		if err != nil {
			return absent, fmt.Errorf("read %s/%d to look for messages in doubt: %w", st.to.topic, st.to.partition, err)
		}
		found, next, err := readFor(ids, answer.Records, offset)
		if err != nil || found {
			return present, err
		}
		if end = answer.HighWatermark; next == offset && next < end {
			return absent, fmt.Errorf("read %s/%d to look for messages in doubt: nothing comes at offset %d", st.to.topic, st.to.partition, offset)
		}
		offset = next
	}
	return absent, nil
}

const fetchBytes = 4 << 20

// readFor says whether one of the messages is among the records, and where the
// next ones begin.
func readFor(ids map[string]bool, records kafkago.RecordReader, offset int64) (found bool, next int64, err error) {
	for next = offset; ; {
		record, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return false, next, nil
		}
		if err != nil {
			return false, next, err
		}
		next = max(next, record.Offset+1)
		for _, h := range record.Headers {
			if h.Key == headerID && ids[string(h.Value)] {
				return true, next, nil
			}
		}
	}
}
