package relay_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// deduplicating is a sink that recognises batches which are sent again. It fails, rejects and loses answers like other sinks,
// and may accept a batch long after its sender has died. It must not receive any message twice.
type deduplicating struct {
	*unsteady
	plans int
}

// Plan makes two planned batches, as if the destination had two partitions.
func (s *deduplicating) Plan(ctx context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	s.w.napFor(ctx, s.w.span(5*time.Millisecond))
	if ctx.Err() != nil || s.isDead() {
		return nil, sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down"))
	}
	if answer, down := s.w.isDown(s.name); down {
		return nil, sinks.All(len(batch), answer)
	}
	s.plans++
	batchRefs, sizes := make([]sinks.BatchRef, len(batch)), [2]int{}
	for i, m := range batch {
		p := crc32.ChecksumIEEE([]byte(m.Key)) % 2
		batchRefs[i] = sinks.BatchRef{Batch: fmt.Sprintf("%s %06d %d", s.relay, s.plans, p), Place: sizes[p]}
		sizes[p]++
	}
	for i, m := range batch {
		batchRefs[i].Size = sizes[crc32.ChecksumIEEE([]byte(m.Key))%2]
	}
	return batchRefs, nil
}

// Send sends the batches one after the other. The messages of batches that are sent again are in the order of their batches;
// messages that are sent for the first time may be in any order.
func (s *deduplicating) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	outcomes := make([]sinks.Outcome, len(batch))
	for done := map[string]bool{}; ; {
		name, group, places := nextGroup(batch, done)
		if name == "" {
			return outcomes
		}
		done[name] = true
		for i, o := range s.sendGroup(ctx, name, group) {
			outcomes[places[i]] = o
		}
	}
}

// nextGroup returns the messages of the first batch that is not done, in the batch's order.
func nextGroup(batch []sinks.Message, done map[string]bool) (name string, group []sinks.Message, at []int) {
	for i, m := range batch {
		if name == "" && !done[m.BatchRef.Batch] {
			name = m.BatchRef.Batch
		}
		if name != "" && m.BatchRef.Batch == name {
			group, at = append(group, m), append(at, i)
		}
	}
	return name, group, at
}

func (s *deduplicating) sendGroup(ctx context.Context, name string, group []sinks.Message) []sinks.Outcome {
	n := len(group)
	s.w.napFor(ctx, s.w.span(30*time.Millisecond))
	open := sinks.All(n, sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down"))
	if _, down := s.w.isDown(s.name); down || ctx.Err() != nil || s.isDead() {
		return open
	}
	if strings.HasSuffix(name, " 1") && time.Now().Unix()%60 < 15 && !s.w.isCalm() { // one of the two partitions doesn't answer for 15 s of each minute
		return sinks.All(n, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "no answer"))
	}
	if n < group[0].BatchRef.Size {
		if s.w.has(name) {
			return sinks.All(n, sinks.Ok("from before"))
		}
		return sinks.All(n, sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, "not there"))
	}
	switch fate := s.w.pick(100); {
	case fate < 3 && !s.w.isCalm(): // the batch arrives after a long time, and its sender has given up
		s.w.relays.Go(func() {
			time.Sleep(s.w.span(20 * time.Second))
			s.w.take(s.name, s.relay, name, group)
		})
		return open
	case fate < 6 && !s.w.isCalm():
		s.w.take(s.name, s.relay, name, group)
		return sinks.All(n, sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "the answer was lost"))
	case fate < 9 && !s.w.isCalm() && s.w.refuses(name):
		failed := sinks.All(n, sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, ""))
		failed[0] = sinks.Fail(sinks.Retry, sinks.ReasonServerError, "try again")
		return failed
	}
	return s.w.take(s.name, s.relay, name, group)
}

// take makes the sink accept a whole batch that it doesn't have yet, or refuse the whole batch. A refused batch is refused
// again each time.
func (w *world) take(sink, by, name string, group []sinks.Message) []sinks.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log[name] == "" {
		w.log[name] = w.verdictOn(sink, group)
		for _, m := range group {
			if w.log[name] == "taken" {
				w.checkOrder(sink, m)
				w.checkDecided(sink, m)
				w.traced(m, "sink %s, place %d of %s, by %s", sink, m.BatchRef.Place, name, by)
				w.arrived(sink, m)
				if w.delivered[arrivalOf(m, sink)] > 1 && w.falls == 0 {
					w.problem("message %d came twice to a sink that deduplicates", numberOf(m.ID))
				}
			}
		}
	}
	if w.log[name] == "taken" {
		return sinks.All(len(group), sinks.Ok(name))
	}
	outcomes := sinks.All(len(group), sinks.Fail(sinks.Unsent, sinks.ReasonBlocked, ""))
	for i, m := range group {
		if n := numberOf(m.ID); isPoison(n) && !w.mended[arrivalOf(m, sink)] {
			w.refused[arrivalOf(m, sink)] = true
			outcomes[i] = sinks.Fail(sinks.Reject, sinks.ReasonRefused, "poison")
		}
	}
	return outcomes
}

func (w *world) verdictOn(sink string, group []sinks.Message) string {
	for _, m := range group {
		if n := numberOf(m.ID); isPoison(n) && !w.mended[arrivalOf(m, sink)] {
			return "refused"
		}
	}
	return "taken"
}

func (w *world) has(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log[name] == "taken"
}

// refuses reports whether the sink refuses a batch each time that it is sent. It never refuses a batch that it has accepted.
func (w *world) refuses(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log[name] == "" {
		w.log[name] = "refused"
	}
	return w.log[name] == "refused"
}
