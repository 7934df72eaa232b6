package relay

import (
	"cmp"
	"slices"
)

// takeBatch takes what may be sent together, sorted as it was written.
func (e *engine) takeBatch(o *outlet) []*item {
	most := o.mostAtOnce()
	batch := make([]*item, 0, min(most, o.buffered))
	bytes := 0
	for len(batch) < most && (bytes < o.options.BatchBytes || len(batch) == 0) {
		entry, ok := o.queue.pop()
		if !ok {
			break
		}
		if len(batch) > 0 && o.deservesMore(entry, most-len(batch)) {
			o.queue.giveBack(entry)
			break
		}
		for _, it := range e.takeEntry(o, entry, most-len(batch), o.options.BatchBytes-bytes) {
			batch = append(batch, it)
			bytes += it.size()
		}
	}
	if e.options.Claim == ByLanes { // rows come in the order in which they were picked
		slices.SortFunc(batch, func(a, b *item) int { return cmp.Compare(a.row.ID, b.row.ID) })
	}
	return batch
}

// deservesMore says that a key with many messages begins the next batch rather
// than get the little that is left of this one: of a key one batch is under way at
// a time, and a busy key goes no faster than its batches are large.
func (o *outlet) deservesMore(entry queued, left int) bool {
	return entry.key != nil && left < o.options.Batch/2 && left < min(len(entry.key.items), o.perKey())
}

// takeEntry takes up to n items of one place in the queue, and about so many
// bytes.
func (e *engine) takeEntry(o *outlet, entry queued, n, bytes int) []*item {
	if entry.key == nil {
		return e.launch(nil, []*item{entry.item})
	}
	k := entry.key
	k.queued = false
	return e.launch(k, k.take(min(n, o.perKey(), k.fits(bytes))))
}

// fits is how many of the key's items make up so many bytes; one at least.
func (k *key) fits(bytes int) int {
	for i, it := range k.items {
		if bytes -= it.size(); bytes < 0 {
			return max(1, i)
		}
	}
	return max(1, len(k.items))
}

// launch marks items as under way. Those that were dropped meanwhile are left
// out, and those that can't be sent are parked, with what comes after them
// left for later.
func (e *engine) launch(k *key, items []*item) []*item {
	for i, it := range items {
		if it.stage != inQueue {
			return items[:i] // only items without a key are dropped, or turn out to be delivered, where they stand
		}
		if why, bad := e.unsendable(it); bad {
			e.putBack(k, items[i+1:])
			e.reject(it, why)
			return items[:i]
		}
		it.outlet.refund(it)
		it.stage = inFlight
		it.lane.pinned++
		if k != nil {
			k.flying++
		}
	}
	return items
}

func (e *engine) putBack(k *key, items []*item) {
	for _, it := range items {
		k.add(it)
	}
}
