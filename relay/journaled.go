package relay

import (
	"cmp"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// The database stores a journal of each lane. If this relay dies, the journal shows the lane's next holder which messages were in
// flight (quarantine.go), and in which planned batches they were (dedup.go). This file contains the engine's copy of the journals.

// journaled is the engine's copy of one lane's journal.
type journaled struct {
	suspects  map[rowRef]int       // rows that were in flight when a relay died; the value is how many relays died while the row was the only one in flight
	batchRefs map[rowRef]*batchRef // unsettled rows of planned batches, which this relay or the lane's last holder has journalled
	stale     bool                 // the stored journal is unknown or may name finished rows, so the next write of journals replaces it
}

// rowRef identifies a row in a journal, for one sink. It contains a checksum of the message's id, because the row's id may later be
// assigned to another message.
type rowRef struct {
	queue int
	lane  int
	id    int64
	check uint32
}

// batchRef refers to a row's place in a planned batch. Comments call it the row's reference.
type batchRef struct {
	batch  *dedupBatch
	place  int
	status *sinks.Outcome // set once the sink has confirmed the message, before the row is settled
}

// dedupBatch is a planned batch. Its sink recognises the batch when it is sent again.
type dedupBatch struct {
	sink       string
	name       string
	size       int
	unresolved bool // it is unknown whether the sink has the batch
}

func refOf(r *storage.Row, queue int) rowRef {
	return rowRef{queue, r.Lane, r.ID, crc32.ChecksumIEEE([]byte(r.Message.ID))}
}

// put sets a row's reference.
func (j *journaled) put(ref rowRef, t *batchRef) {
	if j.batchRefs == nil {
		j.batchRefs = map[rowRef]*batchRef{}
	}
	j.batchRefs[ref] = t
}

// maxCrashes is how many relays must die while a message is the only one in flight before that message is parked.
const maxCrashes = 5

// batches returns the references in the form in which a journal stores them.
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

// addRef adds a row to its batch in a journal.
func addRef(j *storage.Journal, sink string, t sinks.BatchRef, ref rowRef) {
	at := slices.IndexFunc(j.Batches, func(other storage.SentBatch) bool { return other.Batch == t.Batch && other.Sink == sink })
	if at < 0 {
		at = len(j.Batches)
		j.Batches = append(j.Batches, storage.SentBatch{Sink: sink, Batch: t.Batch, Size: t.Size})
	}
	own := &j.Batches[at]
	own.IDs, own.Places, own.Checks = append(own.IDs, ref.id), append(own.Places, t.Place), append(own.Checks, ref.check)
}

// rowsOf calls the function `take` with each row of a SentBatch, and the row's place in the batch. If the lists of the SentBatch
// differ in length, rowsOf uses only the complete entries.
func rowsOf(t *storage.SentBatch, queue, lane int, take func(ref rowRef, place int)) {
	for i := range min(len(t.IDs), len(t.Places), len(t.Checks)) {
		take(rowRef{queue, lane, t.IDs[i], t.Checks[i]}, t.Places[i])
	}
}
