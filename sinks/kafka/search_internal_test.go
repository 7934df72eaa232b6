package kafka

import "testing"

// TestConcurrentSearchesKeepTheirBatches: two Sends search one partition for different batches.
func TestConcurrentSearchesKeepTheirBatches(t *testing.T) {
	t.Parallel()
	s := newSearches()
	first := batchID{producer: 7, to: topicPartition{"t", 0}, end: 10}
	second := batchID{producer: 8, to: topicPartition{"t", 0}, end: 20}
	s.want(first)
	s.want(second)
	for _, id := range []batchID{first, second} {
		if known := s.want(id); known.found[id.batchKey()] == nil || known.next > id.end {
			t.Errorf("the search for the batch of producer %d doesn't look for it from offset %d on: %+v", id.producer, id.end, known)
		}
	}
}
