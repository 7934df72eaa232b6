package rabbitmq

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/rowrelay/rowrelay/sinks"
)

// batch is a Send under way.
type batch struct {
	messages []sinks.Message
	outcomes []sinks.Outcome
	next     []int // by message: the next one of its key; 0 if none
}

var (
	neighbour = sinks.Fail(sinks.Unsent, sinks.ReasonNeighbour, "")
	cancelled = sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, "")
)

// Send publishes the batch, each key through its own connection.
func (s *Sink) Send(ctx context.Context, messages []sinks.Message) []sinks.Outcome {
	b := &batch{messages: messages, outcomes: make([]sinks.Outcome, len(messages)), next: make([]int, len(messages))}
	parts := s.split(ctx, b)
	var others sync.WaitGroup
	for _, p := range parts[1:] {
		others.Go(p.run)
	}
	parts[0].run()
	others.Wait()
	return b.outcomes
}

// split deals the messages out to the links and returns the parts that have
// some. Of each key only the first one is ready to be published.
func (s *Sink) split(ctx context.Context, b *batch) []*part {
	all, last := make([]*part, len(s.links)), make(map[string]int, len(b.messages))
	var parts []*part
	for i := range b.messages {
		key := b.messages[i].Key
		before, follows := last[key]
		if key != "" {
			last[key] = i
			if follows {
				b.next[before] = i
				continue
			}
		}
		at := s.linkOf(key, i)
		if all[at] == nil {
			all[at] = newPart(ctx, s, s.links[at], b)
			parts = append(parts, all[at])
		}
		all[at].ready.push(i)
	}
	return parts
}

func (s *Sink) linkOf(key string, i int) int {
	if key == "" {
		return i % len(s.links)
	}
	return int(maphash.String(s.seed, key) % uint64(len(s.links)))
}

// stopKey notes that no message behind this one may be sent: all are of its
// key.
func (b *batch) stopKey(i int) {
	for i = b.next[i]; i != 0; i = b.next[i] {
		b.outcomes[i] = neighbour
	}
}

// fail gives a message, and all of its key behind it, an outcome, unless they
// have one.
func (b *batch) fail(i int, o sinks.Outcome) {
	for ; ; i = b.next[i] {
		if b.outcomes[i] == (sinks.Outcome{}) {
			b.outcomes[i] = o
		}
		if b.next[i] == 0 {
			return
		}
	}
}
