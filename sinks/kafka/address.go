package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// address makes the records and decides where each goes. It says whether there
// is anything to carry.
func (r *run) address(ctx context.Context) bool {
	names := r.makeRecords()
	topics, err := r.sink.topics(ctx, slices.Sorted(maps.Keys(r.wanted(names))))
	if err != nil {
		for i := range r.batch {
			if !r.settled[i] {
				r.settle(i, r.sink.troubled(ctx, err))
			}
		}
		return false
	}
	sticky := map[string]int{}
	for i := range r.batch {
		if !r.settled[i] {
			r.enqueue(i, topics[names[i]], sticky)
		}
	}
	return true
}

// makeRecords returns the name of each message's topic.
func (r *run) makeRecords() []string {
	names, now, room := make([]string, len(r.batch)), time.Now(), r.roomForHeaders()
	for i := range r.batch {
		name, err := r.nameOf(i, names)
		if err == nil {
			names[i] = name
			r.records[i], err = r.recordOf(i, name, now, room)
			room = room[min(len(r.records[i].headers), len(room)):]
		}
		if err != nil {
			r.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error()))
		}
	}
	return names
}

// recordOf makes the message's record, or that of the CloudEvent which it
// becomes.
func (r *run) recordOf(i int, topic string, now time.Time, room []header) (record, error) {
	if r.sink.events == nil {
		return r.sink.record(&r.batch[i], topic, now, room)
	}
	event, err := r.sink.events.Message(r.batch[i])
	if err != nil {
		return record{}, err
	}
	return r.sink.record(&event, topic, now, make([]header, len(event.Headers)+ownHeaders))
}

// roomForHeaders is enough for all records of the batch.
func (r *run) roomForHeaders() []header {
	n := 0
	for i := range r.batch {
		n += len(r.batch[i].Headers) + ownHeaders
	}
	return make([]header, n)
}

// nameOf is mostly the name of the topic before.
func (r *run) nameOf(i int, names []string) (string, error) {
	if i > 0 && names[i-1] != "" && names[i-1] == r.batch[i].Topic && r.sink.options.Topic == DefaultTopic {
		return names[i-1], nil
	}
	return r.sink.topicOf(&r.batch[i])
}

func (r *run) wanted(names []string) map[string]bool {
	wanted := map[string]bool{}
	for i, name := range names {
		if !r.settled[i] {
			wanted[name] = true
		}
	}
	return wanted
}

// enqueue puts a message into its lane.
func (r *run) enqueue(i int, t *topic, sticky map[string]int) {
	if t.err != nil {
		r.settle(i, r.sink.topicTrouble(t))
		return
	}
	partition, err := r.sink.partitionOf(&r.batch[i], t, sticky)
	if err != nil {
		r.settle(i, sinks.Fail(sinks.Reject, sinks.ReasonUnroutable, err.Error()))
		return
	}
	at := place{t.name, partition}
	l := r.lanes[at]
	if l == nil {
		l = &lane{place: at}
		r.lanes[at] = l
		r.order = append(r.order, l)
	}
	l.waiting = append(l.waiting, i)
}

// carry sends a lane's record batch when its partition is free and there is a
// slot.
func (r *run) carry(ctx context.Context, l *lane, slowest time.Duration) answer {
	gate := r.sink.lanes.gate(l.place)
	if !enter(ctx, gate) {
		return answer{lane: l, verdict: verdict{outcome: cancelled}}
	}
	defer func() { <-gate }()
	if !enter(ctx, r.sink.slots) {
		return answer{lane: l, verdict: verdict{outcome: cancelled}}
	}
	defer func() { <-r.sink.slots }()
	start := time.Now()
	if deadline, bounded := ctx.Deadline(); ctx.Err() != nil || bounded && deadline.Sub(start) < slowest {
		return answer{lane: l, verdict: verdict{outcome: cancelled}} // it would probably be cut off
	}
	v := r.sink.produce(ctx, r.until, l.place, r.recordsOf(l.chunk), noProducer)
	return answer{lane: l, verdict: v, took: time.Since(start)}
}

func (r *run) recordsOf(chunk []int) []record {
	if len(chunk) == len(r.records) { // all, in their order
		return r.records
	}
	records := make([]record, len(chunk))
	for n, i := range chunk {
		records[n] = r.records[i]
	}
	return records
}

func enter(ctx context.Context, gate chan struct{}) bool {
	select {
	case gate <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// lanes are the gates to partitions, over all Sends: one record batch at a time,
// so that what comes first is first in the log.
type lanes struct {
	mu    sync.Mutex
	gates map[place]chan struct{}
}

func newLanes() *lanes { return &lanes{gates: map[place]chan struct{}{}} }

func (l *lanes) gate(at place) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[at] == nil {
		l.gates[at] = make(chan struct{}, 1)
	}
	return l.gates[at]
}
