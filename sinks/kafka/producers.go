package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	kafkago "github.com/segmentio/kafka-go"
)

// The request that kafka-go can't be taught, as it has no room for its number:
// which producers a partition knows, and the last sequence of each. Its form is
// that of the protocol's guide,
// https://kafka.apache.org/protocol#The_Messages_DescribeProducers.
const (
	describeProducers        = 61
	describeProducersVersion = 0
)

// lastSequence asks a partition's leader how far it has come with a producer.
func (s *IdempotentSink) lastSequence(ctx context.Context, leader string, p place, producer int64) (last int32, known bool, err error) {
	err = s.brokers.stream(ctx, leader, describeProducers, describeProducersVersion, producersRequest(p), func(r *stream) error {
		last, known, err = readProducers(r, producer)
		return err
	})
	return last, known, err
}

func producersRequest(p place) []byte {
	body := binary.AppendUvarint(nil, 2) // one topic: lengths are one more
	body = append(binary.AppendUvarint(body, uint64(len(p.topic)+1)), p.topic...)
	body = binary.AppendUvarint(body, 2) // one partition
	body = binary.BigEndian.AppendUint32(body, uint32(p.partition))
	return append(body, 0, 0) // no tagged fields: of the topic, of the request
}

// readProducers reads the answer for one topic and partition.
func readProducers(r *stream, producer int64) (last int32, known bool, err error) {
	r.skip(4)               // throttle time
	r.uvarint()             // topics
	r.skip(r.uvarint() - 1) // topic
	r.uvarint()             // partitions
	r.skip(4)               // partition
	code := kafkago.Error(r.int16())
	r.skip(r.uvarint() - 1) // what that means, in words
	for left := r.uvarint() - 1; left > 0 && r.err == nil; left-- {
		id := r.int64()
		r.skip(4) // epoch
		sequence := r.int32()
		r.skip(8 + 4 + 8) // last timestamp, coordinator's epoch, start of a transaction
		r.tags()
		if id == producer {
			last, known = sequence, true
		}
	}
	return last, known, r.failure(code)
}

// stream sends a request of the protocol's compact form, and has what the answer
// has after its head be read as it comes. Its errors are wireErrors, or the reader's
// own.
func (w *wire) stream(ctx context.Context, address string, key, version int16, body []byte, read func(*stream) error) error {
	c, err := w.take(ctx, address)
	if err != nil {
		return &wireError{err: err}
	}
	stop := context.AfterFunc(ctx, c.close)
	answer, err := c.ask(w.clientID, key, version, body)
	var refused error
	if err == nil {
		refused = read(answer)
		err = answer.err
	}
	if err == nil { // what is left of it
		_, err = io.Copy(io.Discard, answer.from)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.close()
		return &wireError{arrived: true, err: err}
	}
	w.giveBack(address, c)
	return refused
}

// ask sends a request, and reads the head of the answer.
func (c *conn) ask(clientID string, key, version int16, body []byte) (*stream, error) {
	const correlation = 1
	head := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
	head = binary.BigEndian.AppendUint16(head, uint16(version))
	head = binary.BigEndian.AppendUint32(head, correlation)
	head = append(binary.BigEndian.AppendUint16(head, uint16(len(clientID))), clientID...)
	request := append(append(head, 0), body...) // no tagged fields
	binary.BigEndian.PutUint32(request, uint32(len(request)-4))
	if _, err := c.link.Write(request); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c.link, size[:]); err != nil {
		return nil, fmt.Errorf("read the answer (does the broker know request %d? Kafka 2.8 and newer do): %w", key, err)
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	answer := &stream{from: bufio.NewReaderSize(io.LimitReader(c.link, n), 64<<10)}
	answer.skip(4) // which request it is to
	answer.tags()
	return answer, answer.err
}
