package relay

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// A journal is what is written down of a lane before it is sent, so that whoever takes
// the lane over from a relay that died knows of it: which messages were under way, for
// quarantine, and which planned batches they were in, for dedup. Journals are written one
// at a time: each has all that was before it.

// journal writes journals.
type journal struct {
	*byLanes
	store   storage.Journaler
	writing bool           // one is on its way
	stale   map[*lane]bool // their stored journals differ from what is in flight, and are to be written again
}

// begin has a batch written down, and sent.
func (j *journal) begin(q *sinkQueue, b job, items []*item) {
	j.writing = true
	j.give(q, b, items)
}

// journaledBatch is a batch that is written down before it is sent.
type journaledBatch struct {
	batch
	journal  *journal
	journals []storage.Journal
	err      error // it wasn't written, and nothing was sent
}

func (b *journaledBatch) do(ctx context.Context, e *engine, f *flight) {
	if b.write(ctx, func() {}) {
		b.batch.do(ctx, e, f)
	}
}

// write says whether the batch may be sent. The loop is told at once, so that the next
// journal can be written.
func (b *journaledBatch) write(ctx context.Context, note func()) bool {
	j := b.journal
	ctx, cancel := context.WithTimeout(ctx, j.operationTimeout())
	defer cancel()
	held, err := j.store.WriteJournal(ctx, j.options.Name, b.journals)
	if err == nil && len(held) < len(b.journals) {
		err = storage.ErrFenced
	}
	b.err = err
	j.journaled <- func() {
		j.writing = false
		note()
	}
	return err == nil
}

func (b *journaledBatch) done(e *engine, f *flight) {
	if b.err != nil {
		b.notSent(f)
		return
	}
	b.batch.done(e, f)
}

// notSent takes back a batch whose journal could not be written.
func (b *journaledBatch) notSent(f *flight) {
	j := b.journal
	j.failed("journal", b.err)
	for _, written := range b.journals {
		if l := j.lanes[written.Lane]; l != nil {
			j.stale[l] = true // nobody knows: it is written again
		}
	}
	j.putBack(f.queue, f.items)
	j.resume(f.items)
	now := time.Now()
	j.lease.next = now
	f.queue.pauseUntil = now.Add(settlePause.Min)
}

// putBack takes items back that were not handed to a worker after all.
func (j *journal) putBack(q *sinkQueue, items []*item) {
	for _, it := range items {
		if it.key != nil {
			it.key.inFlight--
		}
	}
	j.requeue(q, items)
}
