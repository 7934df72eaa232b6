package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	kafkago "github.com/segmentio/kafka-go"
)

// The request that kafka-go doesn't have: which producers a partition knows, and
// the last sequence of each. Its form is that of the protocol's guide,
// https://kafka.apache.org/protocol#The_Messages_DescribeProducers.
const (
	describeProducers        = 61
	describeProducersVersion = 0
)

// lastSequence asks a partition's leader how far it has come with a producer.
func (s *IdempotentSink) lastSequence(ctx context.Context, leader string, p place, producer int64) (last int32, known bool, err error) {
	answer, err := s.brokers.ask(ctx, leader, describeProducers, describeProducersVersion, producersRequest(p))
	if err != nil {
		return 0, false, err
	}
	return readProducers(answer, producer)
}

func producersRequest(p place) []byte {
	body := binary.AppendUvarint(nil, 2) // one topic: lengths are one more
	body = append(binary.AppendUvarint(body, uint64(len(p.topic)+1)), p.topic...)
	body = binary.AppendUvarint(body, 2) // one partition
	body = binary.BigEndian.AppendUint32(body, uint32(p.partition))
	return append(body, 0, 0) // no tagged fields: of the topic, of the request
}

// readProducers reads the answer for one topic and partition.
func readProducers(answer []byte, producer int64) (last int32, known bool, err error) {
	r := &reader{rest: answer}
	r.skip(4) // throttle time
	if r.count(); r.failed {
		return 0, false, errShort
	}
	r.text() // topic
	r.count()
	r.skip(4) // partition
	code := kafkago.Error(r.int16())
	message := r.text()
	for range r.count() {
		id, _, sequence := r.int64(), r.int32(), r.int32()
		r.skip(8 + 4 + 8) // last timestamp, coordinator's epoch, start of a transaction
		r.tags()
		if id == producer {
			last, known = sequence, true
		}
	}
	switch {
	case r.failed:
		return 0, false, errShort
	case code != 0:
		return 0, false, fmt.Errorf("%s: %w", message, code)
	}
	return last, known, nil
}

var errShort = errors.New("the broker's answer is cut off")

// reader reads an answer in the protocol's compact form.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.failed, r.rest = true, nil
		return make([]byte, max(0, min(n, 8)))
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) skip(n int)   { r.take(n) }
func (r *reader) int16() int16 { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int32 { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *reader) int64() int64 { return int64(binary.BigEndian.Uint64(r.take(8))) }

func (r *reader) uvarint() int {
	value, n := binary.Uvarint(r.rest)
	if n <= 0 || value > 1<<30 {
		r.failed, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return int(value)
}

// count is that of an array's items, which are no more than there are bytes.
func (r *reader) count() int { return min(max(0, r.uvarint()-1), len(r.rest)) }

func (r *reader) text() string { return string(r.take(max(0, r.uvarint()-1))) }

func (r *reader) tags() {
	for range min(r.uvarint(), len(r.rest)) {
		r.uvarint()
		r.skip(r.uvarint())
	}
}

// ask sends a request that kafka-go doesn't know, and returns what the answer has
// after its head. Its errors are wireErrors.
func (w *wire) ask(ctx context.Context, address string, key, version int16, body []byte) (answer []byte, err error) {
	err = w.stream(ctx, address, key, version, body, func(r *stream) error {
		answer, r.err = io.ReadAll(io.LimitReader(r.from, maxAnswer))
		return r.err
	})
	return answer, err
}

const maxAnswer = 64 << 20

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
