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

// A search looks for planned batches in a partition's log. It starts at the end
// offset that was known when the batches were planned. It reads only the header of each
// record batch, which has the producer and the first sequence. Searching a long log
// takes several Sends; each continues where the previous one stopped.

// searches holds the current search of each partition.
type searches struct {
	mu sync.Mutex
	of map[topicPartition]*search
}

// search is the progress of a search. Only the holder of the partition's semaphore ([Sink.gate]) changes it.
type search struct {
	from, next, end int64                     // offsets: start of the search, next read, end of the log
	found           map[batchKey]*atomic.Bool // for each batch that the search looks for: whether it was found; the set of batches never changes
	steps           int
}

// batchKey identifies a batch in the log.
type batchKey struct {
	producer int64
	base     int32
}

func (s batchID) batchKey() batchKey { return batchKey{s.producer, s.base} }

// searching is the error of a search that the next Send continues.
type searching struct {
	id              batchID
	from, next, end int64
}

func (s *searching) Error() string {
	return fmt.Sprintf("searching the log of %s/%d for a batch that was planned at %s, to find out whether it was delivered: at offset %d of %d, started at offset %d",
		s.id.to.topic, s.id.to.partition, s.id.at.UTC().Format(time.RFC3339), s.next, s.end, s.from)
}

func newSearches() *searches { return &searches{of: map[topicPartition]*search{}} }

// mostSought limits the size of a search. A new search of a partition also looks for the
// batches of the previous search, if that search looked for fewer than mostSought
// batches.
const mostSought = 1000

// want returns a search that looks for all these batches of one partition in a single pass. If the
// partition's current search does not look for all of them, want replaces that search.
func (s *searches) want(ids ...batchID) *search {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := ids[0].to
	known := s.of[to]
	if known != nil && !slices.ContainsFunc(ids, func(id batchID) bool { return known.found[id.batchKey()] == nil }) {
		return known
	}
	wanted := &search{from: ids[0].end, found: map[batchKey]*atomic.Bool{}}
	if known != nil && len(known.found) < mostSought { // another Send may still need the result for these batches
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

// search searches the log for a batch. It returns an error of type searching if
// the next Send has to continue the search.
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
			return absent, nil // the topic was created again, or retention has deleted this part
		case err != nil && ctx.Err() == nil:
			return absent, &partitionError{fmt.Errorf("search %s/%d for a batch: %w", id.to.topic, id.to.partition, err)}
		case err != nil || known.next < known.end && !time.Now().Before(until):
			return absent, &searching{id, known.from, known.next, known.end}
		case known.next >= known.end && !found.Load():
			return absent, nil
		}
	}
	return present, nil
}

// The first step of a search is short, so that the relay soon learns that the
// outcome is still unknown. Each step ends early enough to report its progress.
const (
	firstStep = time.Second
	laterStep = 25 * time.Second
)

// step starts a step of the search, and returns the time at which the step has to end.
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

// read continues the search with the next fetchBytes of the log, or with the next record batch if
// that is larger.
func (s *IdempotentSink) read(ctx context.Context, leader string, p topicPartition, known *search) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.RequestTimeout)
	defer cancel()
	before := known.next
	err := s.brokers.stream(ctx, leader, fetch, fetchVersion, fetchRequest(p, known.next), func(r *stream) error { return readFetched(r, known) })
	if err == nil && known.next == before && known.next < known.end {
		err = fmt.Errorf("the broker returned no data at offset %d", before)
	}
	return err
}

// The fetch request, in the last version that has topic names instead of ids:
// https://kafka.apache.org/protocol#The_Messages_Fetch. kafka-go's fetch decompresses
// and decodes every record. In a test with 54 million records, it did not finish within two
// minutes; reading only the headers of their batches took 0.1 s.
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
	body = append(body, 0)                                    // isolation level: read uncommitted
	body = binary.BigEndian.AppendUint32(body, 0)             // no session
	body = binary.BigEndian.AppendUint32(body, none)          //
	body = binary.AppendUvarint(body, 2)                      // one topic: compact arrays encode their length plus one
	body = binary.AppendUvarint(body, uint64(len(p.topic)+1)) //
	body = append(body, p.topic...)
	body = binary.AppendUvarint(body, 2) // one partition
	body = binary.BigEndian.AppendUint32(body, uint32(p.partition))
	body = binary.BigEndian.AppendUint32(body, none) // leader's epoch
	body = binary.BigEndian.AppendUint64(body, uint64(offset))
	body = binary.BigEndian.AppendUint32(body, none)       // epoch of the last fetched record
	body = binary.BigEndian.AppendUint64(body, ^uint64(0)) // log start offset: for replicas only
	body = binary.BigEndian.AppendUint32(body, fetchBytes) // most bytes
	return append(body, 0, 0, 1, 1, 0)                     // empty: tagged fields of the partition and of the topic, forgotten topics, rack, tagged fields of the request
}

// readFetched parses the answer for one topic and partition while the answer arrives.
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
	r.skip(8 + 8) // last stable offset, log start offset
	for left := r.uvarint() - 1; left > 0 && r.err == nil; left-- {
		r.skip(8 + 8) // an aborted transaction: producer id, first offset
		r.tags()
	}
	r.skip(4) // preferred read replica
	if bytes := r.uvarint() - 1; r.err == nil && code == 0 {
		readHeads(r, bytes, known)
	}
	return r.failure(code)
}

// readHeads reads the headers of record batches. The last batch may be truncated;
// its header is sufficient.
func readHeads(r *stream, left int, known *search) {
	for left >= batchBytes && r.err == nil {
		head := r.take(batchBytes)
		base, size := int64(binary.BigEndian.Uint64(head)), 12+int(binary.BigEndian.Uint32(head[8:]))
		const modern = 2
		if format := head[16]; format < modern { // old formats have no producers
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
