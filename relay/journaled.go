package relay

import (
	"cmp"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Before rows are sent, the lane's journal in the database may get two things, for the next holder of the lane should this
// relay die: which messages are being sent (quarantine.go), and in which planned batches (dedup.go). This file has the
// engine's copy of both.

// journaled belongs to a lane, and is forgotten with it.
type journaled struct {
	suspects  map[rowRef]int       // rows that were being sent when a relay died: how often each was alone with one
	batchRefs map[rowRef]*batchRef // rows that were sent in planned batches and are not settled, also by the lane's last holder
	stale     bool                 // its stored journal may name what is over by now, or isn't known: it goes into the next write
}

// rowRef names a row in a journal. It has a checksum of the message's id, as the row's id may be given out again.
type rowRef struct {
	queue int // as it goes to this one
	lane  int
	id    int64
	check uint32
}

// batchRef is a row's place in a planned batch: the row's reference, in comments.
type batchRef struct {
	batch  *dedupBatch
	place  int
	status *sinks.Outcome // delivered, though the row may still have to be read
}

// dedupBatch is a batch that its sink recognises when it comes again.
type dedupBatch struct {
	sink       string
	name       string
	size       int
	unresolved bool // the sink may have it or not
}

func refOf(r *storage.Row, queue int) rowRef {
	return rowRef{queue, r.Lane, r.ID, crc32.ChecksumIEEE([]byte(r.Message.ID))}
}

// put gives a row its reference.
func (j *journaled) put(ref rowRef, t *batchRef) {
	if j.batchRefs == nil {
		j.batchRefs = map[rowRef]*batchRef{}
	}
	j.batchRefs[ref] = t
}

// maxCrashes is how often a message may be alone with a relay that dies.
const maxCrashes = 5

// batches lists the references, as they are written down.
func (j *journaled) batches() []storage.SentBatch {
	var written storage.Journal
	for _, ref := range slices.SortedFunc(maps.Keys(j.batchRefs), func(a, b rowRef) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.check, b.check), a.queue-b.queue)
	}) {
		t := j.batchRefs[ref]
		addRef(&written, t.batch.sink, sinks.BatchRef{Batch: t.batch.name, Size: t.batch.size, Place: t.place}, ref)
	}
	return written.Batches
}

// addRef adds a row to the entry of its batch in a journal.
func addRef(j *storage.Journal, sink string, t sinks.BatchRef, ref rowRef) {
	at := slices.IndexFunc(j.Batches, func(other storage.SentBatch) bool { return other.Batch == t.Batch && other.Sink == sink })
	if at < 0 {
		at = len(j.Batches)
		j.Batches = append(j.Batches, storage.SentBatch{Sink: sink, Batch: t.Batch, Size: t.Size})
	}
	own := &j.Batches[at]
	own.IDs, own.Places, own.Checks = append(own.IDs, ref.id), append(own.Places, t.Place), append(own.Checks, ref.check)
}

// rowsOf calls take with each row of a queue's SentBatch, as it is in a lane, and its place. A
// SentBatch whose lists differ in length has the rows that are complete.
func rowsOf(t *storage.SentBatch, queue, lane int, take func(ref rowRef, place int)) {
	for i := range min(len(t.IDs), len(t.Places), len(t.Checks)) {
		take(rowRef{queue, lane, t.IDs[i], t.Checks[i]}, t.Places[i])
	}
}
