package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// A search looks for batches in a partition's log, from where it ended when they
// were planned. It reads no records: the head of each record batch says whose it
// is. A long log takes several Sends, each of which goes on where the last one
// stopped.

// searches are those of all partitions.
type searches struct {
	mu sync.Mutex
	of map[topicPartition]*search
}

// search is how far one has come. Who holds the partition's gate changes it.
type search struct {
	from, next, end int64                     // offsets: where it began, what is read next, where the log ends
	found           map[batchKey]*atomic.Bool // for each batch that it looks for; the map doesn't change
	steps           int
}

// batchKey is what a batch is recognised by in the log.
type batchKey struct {
	producer int64
	base     int32
}

func (s batchID) batchKey() batchKey { return batchKey{s.producer, s.base} }

// searching is the error of a search that goes on with the next Send.
type searching struct {
	id              batchID
	from, next, end int64
}

func (s *searching) Error() string {
	return fmt.Sprintf("looking through the log of %s/%d for a batch of %s, whose relay can't tell whether it was delivered: at offset %d of %d, from %d on",
		s.id.to.topic, s.id.to.partition, s.id.at.UTC().Format(time.RFC3339), s.next, s.end, s.from)
}

func newSearches() *searches { return &searches{of: map[topicPartition]*search{}} }

// mostSought bounds the batches that one search looks for.
const mostSought = 1000

// want has the batches of a producer be looked for in one go, should one of them have
// to be, and returns their search. One that doesn't look for all of them is replaced by one that does.
func (s *searches) want(ids ...batchID) *search {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := ids[0].to
	known := s.of[to]
	if known != nil && !slices.ContainsFunc(ids, func(id batchID) bool { return known.found[id.batchKey()] == nil }) {
		return known
	}
	wanted := &search{from: ids[0].end, found: map[batchKey]*atomic.Bool{}}
	if known != nil && len(known.found) < mostSought { // another Send may be looking for them
		wanted.from = known.from
		maps.Copy(wanted.found, known.found)
	}
	for _, id := range ids {
		wanted.from = min(wanted.from, id.end)
		if wanted.found[id.batchKey()] == nil {
			wanted.found[id.batchKey()] = new(atomic.Bool)
		}
	}
	wanted.next = wanted.from
	s.of[to] = wanted
	return wanted
}

// search says whether a batch is in the log; or that it has to go on.
func (s *IdempotentSink) search(ctx context.Context, leader string, id batchID) (deliveryStatus, error) {
	gate := s.gate(id.to)
	if !enter(ctx, gate) {
		return absent, ctx.Err()
	}
	defer func() { <-gate }()
	known := s.searches.want(id)
	until := known.step(ctx)
	found := known.found[id.batchKey()]
	for !found.Load() {
		switch err := s.read(ctx, leader, id.to, known); {
		case errors.Is(err, kafkago.OffsetOutOfRange):
			return absent, nil // the topic was made anew, or has deleted that part
		case err != nil && ctx.Err() == nil:
			return absent, &partitionError{fmt.Errorf("read %s/%d to look for a batch: %w", id.to.topic, id.to.partition, err)}
		case err != nil || known.next < known.end && !time.Now().Before(until):
			return absent, &searching{id, known.from, known.next, known.end}
		case known.next >= known.end && !found.Load():
			return absent, nil
		}
	}
	return present, nil
}

// The first step of a search is short, so that its sink is soon known to be
// unavailable. Each one ends while there is time to say how far it has come.
const (
	firstStep = time.Second
	laterStep = 25 * time.Second
)

func (k *search) step(ctx context.Context) (until time.Time) {
	length := firstStep
	if k.steps++; k.steps > 1 {
		length = laterStep
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		length = min(length, time.Until(deadline)*4/5)
	}
	return time.Now().Add(length)
}

// read reads on by up to fetchBytes, or one record batch.
func (s *IdempotentSink) read(ctx context.Context, leader string, p topicPartition, known *search) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	before := known.next
	err := s.brokers.stream(ctx, leader, fetch, fetchVersion, fetchRequest(p, known.next), func(r *stream) error { return readFetched(r, known) })
	if err == nil && known.next == before && known.next < known.end {
		err = fmt.Errorf("nothing comes at offset %d", before)
	}
	return err
}

// The request to read, in the last form that names topics:
// https://kafka.apache.org/protocol#The_Messages_Fetch. kafka-go's decompresses
// and takes apart every record: it didn't come through 54 million of them in two
// minutes, which takes 0.1 s by their batches' heads.
const (
	fetch        = 1
	fetchVersion = 12
	fetchBytes   = 8 << 20
)

func fetchRequest(p topicPartition, offset int64) []byte {
	none := ^uint32(0)
	body := binary.BigEndian.AppendUint32(nil, none)          // replica: a client
	body = binary.BigEndian.AppendUint32(body, 1000)          // longest wait, in ms
	body = binary.BigEndian.AppendUint32(body, 1)             // least bytes
	body = binary.BigEndian.AppendUint32(body, fetchBytes)    // most bytes
	body = append(body, 0)                                    // also what isn't committed
	body = binary.BigEndian.AppendUint32(body, 0)             // no session
	body = binary.BigEndian.AppendUint32(body, none)          //
	body = binary.AppendUvarint(body, 2)                      // one topic: lengths are one more
	body = binary.AppendUvarint(body, uint64(len(p.topic)+1)) //
	body = append(body, p.topic...)
	body = binary.AppendUvarint(body, 2) // one partition
	body = binary.BigEndian.AppendUint32(body, uint32(p.partition))
	body = binary.BigEndian.AppendUint32(body, none) // leader's epoch
	body = binary.BigEndian.AppendUint64(body, uint64(offset))
	body = binary.BigEndian.AppendUint32(body, none)       // epoch of the last record
	body = binary.BigEndian.AppendUint64(body, ^uint64(0)) // a replica's start
	body = binary.BigEndian.AppendUint32(body, fetchBytes) // most bytes
	return append(body, 0, 0, 1, 1, 0)                     // no tagged fields, twice; nothing to forget, no rack, no tagged fields
}

// readFetched reads the answer for one topic and partition, as it comes.
func readFetched(r *stream, known *search) error {
	r.skip(4) // throttle time
	code := kafkago.Error(r.int16())
	r.skip(4) // session
	if n := r.uvarint(); r.err != nil || code != 0 || n != 2 {
		return r.failure(code)
	}
	r.skip(r.uvarint() - 1) // topic
	r.uvarint()
	r.skip(4) // partition
	code = kafkago.Error(r.int16())
	if end := r.int64(); r.err == nil && code == 0 {
		known.end = end
	}
	r.skip(8 + 8) // last stable offset, start of the log
	for left := r.uvarint() - 1; left > 0 && r.err == nil; left-- {
		r.skip(8 + 8) // a transaction that was given up: producer, offset
		r.tags()
	}
	r.skip(4) // a replica that is nearer
	if bytes := r.uvarint() - 1; r.err == nil && code == 0 {
		readHeads(r, bytes, known)
	}
	return r.failure(code)
}

// readHeads reads what record batches say of themselves. The last one may be cut
// off; its head is as good as a whole one's.
func readHeads(r *stream, left int, known *search) {
	for left >= batchBytes && r.err == nil {
		head := r.take(batchBytes)
		base, size := int64(binary.BigEndian.Uint64(head)), 12+int(binary.BigEndian.Uint32(head[8:]))
		const modern = 2
		if format := head[16]; format < modern { // it knows no producers
			known.next = max(known.next, base+1)
		} else {
			known.next = max(known.next, base+int64(binary.BigEndian.Uint32(head[23:]))+1)
			m := batchKey{int64(binary.BigEndian.Uint64(head[43:])), int32(binary.BigEndian.Uint32(head[53:]))}
			if found := known.found[m]; found != nil && r.err == nil {
				found.Store(true)
			}
		}
		r.skip(min(size, left) - batchBytes)
		left -= size
	}
}
