package relay

import (
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// If more than half of a batch is full, a key with more messages than fit into the rest waits for the next batch.
func TestBusyKeyGetsLargeBatches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		single, ofKey int
		want          []int
	}{
		"most of the batch is free":   {single: 4, ofKey: 20, want: []int{10, 10, 4}},
		"little of the batch is free": {single: 6, ofKey: 20, want: []int{6, 10, 10}},
		"little is free, but enough":  {single: 6, ofKey: 4, want: []int{10}},
		"no other messages":           {ofKey: 12, want: []int{10, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newSinkQueue(&base{options: Options{Claim: storage.ByLanes, Sinks: map[string]SinkOptions{"sink": {Batch: 10, BatchBytes: 1 << 20, Workers: 1}}}}, "sink", 0)
			q.order = sinks.OrderPrefix
			e, l := &engine{routes: toOneSink(), queues: []*sinkQueue{q}}, emptyLane(storage.Lease{}, 1)
			k := l.key(keyRef{0, "busy"})
			for i := range c.single + c.ofKey {
				it := &item{row: storage.Row{ID: int64(i + 1)}, lane: l, queue: q}
				if i >= c.single {
					it.key = k
				}
				q.add(it)
			}
			for n, want := range c.want {
				batch := e.takeBatch(q)
				if len(batch) != want {
					t.Fatalf("batch %d has %d messages, want %d", n+1, len(batch), want)
				}
				k.inFlight = 0
				q.enqueue(k)
			}
		})
	}
}
