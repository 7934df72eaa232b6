package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Keys that wait. While a message of a key waits for another attempt, is being parked, or is
// parked and holds its key, nothing else of the key is sent: its rows are dropped from memory, and a place is kept. What
// must hold: a blocked key is in memory, or its lane knows that it doesn't know all, and then
// the database is asked before a row of the lane is admitted.

const (
	// maxBlockedKeys bounds the blocked keys in memory, each of which takes about half a
	// KiB. Where there are more, those that came last are forgotten as soon as their retry is
	// written, and the database is asked about each key that is met in their lanes, with
	// one question a page. So a million of them cost no more than these.
	maxBlockedKeys = 10_000

	// blockedInterval is how often lanes that don't know all their blocked keys ask for
	// them, and how often blockersTogether keys ask whether their retry is still there.
	blockedInterval  = 10 * time.Second
	blockersTogether = 500
)

// blockedKeys is what the engine knows of keys that wait for another attempt.
type blockedKeys struct {
	held    *heldLanes
	routes  *router
	queues  []*sinkQueue
	poll    *polling
	control *control // what is paused

	most       int                                      // keys in memory: maxBlockedKeys
	count      int                                      // in memory
	toForget   []*key                                   // once the read that is under way has ended
	forgotten  int64                                    // how many were forgotten so far: whether some were during a read
	resuming   []*key                                   // no longer blocked, with rows to catch up with
	answers    map[storage.LaneKey][]storage.BlockedKey // what the database said of a page's keys, while it is merged
	lanesAskAt time.Time                                // when the database is next asked for the blocked keys of lanes that don't know all of theirs
	keysAskAt  time.Time                                // when it is next asked whether what blocks the keys in memory is still there
}

// block lets nothing of the item's key be sent but the item. What waits behind it is
// dropped, and read again later.
func (b *blockedKeys) block(it *item) {
	k := it.key
	if k == nil || k.lane.lost {
		return
	}
	if !k.blocked {
		b.count++
	}
	k.blocked, k.blockedBy = true, it.row.ID
	for _, other := range slices.Clone(k.items) {
		if other.row.ID != k.blockedBy {
			b.leaveBehind(other)
		}
	}
}

// leaveBehind drops an item of a blocked key; it is read again later.
func (b *blockedKeys) leaveBehind(it *item) {
	it.key.remove(it)
	if !it.row.Deferred {
		it.key.dropAt(it.row.ID)
	}
	b.held.drop(it)
}

// drop takes an item that nothing was done with out of memory. Whoever calls
// it remembers where to read it again.
func (h *heldLanes) drop(it *item) {
	it.stage = dropped
	it.queue.release(it)
	h.forget(it)
}

// unblock ends the wait of a key that is blocked, and has what was left behind read again. If
// the database named the message that blocked the key, another message of the key may wait,
// too: after a failover two relays may each have written a retry. So the database is asked
// again before the key goes on.
func (b *blockedKeys) unblock(k *key) {
	k.blocked = false
	b.count--
	if k.fromDatabase && !k.dropped {
		k.dropAt(k.reader().cursor + 1)
	}
	if k.dropped {
		b.resuming = append(b.resuming, k)
	}
}

// forgetSoon forgets a key that waits for another attempt, where there are many. A read that
// is under way may bring the key's rows, or what the database said of the key before: so the
// key is forgotten when that read has ended, as settled rows are.
func (b *blockedKeys) forgetSoon(k *key) {
	if k == nil || b.count <= b.most {
		return
	}
	b.toForget = append(b.toForget, k)
	if b.poll.under == 0 {
		b.forgetKeys()
	}
}

// forgetKeys forgets the keys of toForget whose retry is written and of which nothing is in
// memory. What was dropped of them leaves a gap.
func (b *blockedKeys) forgetKeys() {
	for _, k := range b.toForget {
		l := k.lane
		if b.count <= b.most || !k.blocked || l.lost || k.inFlight > 0 || len(k.items) > 0 || k.reader().known[k.blockedBy] != nil {
			continue
		}
		if k.dropped {
			k.reader().leaveOut(k.resumeFrom + 1)
		}
		k.blocked, k.dropped, l.keysUnknown = false, false, true
		delete(k.reader().keys, k.ref.key)
		b.count--
		b.forgotten++
	}
	clear(b.toForget)
	b.toForget = b.toForget[:0]
}

// askFirst first takes in what the database has just said of keys, if it was asked. Then it lists in f.asked the keys
// that it must be asked about before the read is merged, and says whether there are any: keys of rows whose lanes don't
// know all their blocked keys, and keys to catch up with that must be asked about again (fromDatabase). Answers of
// earlier steps of this read are kept, and not asked for again.
func (b *blockedKeys) askFirst(f *fetch) bool {
	if f.step == stepBlocked {
		if f.answers == nil {
			f.answers = map[storage.LaneKey][]storage.BlockedKey{}
		}
		for _, ref := range f.asked {
			f.answers[ref] = nil
		}
		for _, found := range f.blocked {
			ref := storage.LaneKey{Lane: found.Lane, Key: found.Key}
			f.answers[ref] = append(f.answers[ref], found)
		}
	}
	if f.kind == readUnrouted || f.kind == readBlockers {
		return false // takes nothing
	}
	f.asked = nil
	asked := map[storage.LaneKey]bool{}
	ask := func(ref storage.LaneKey) {
		if _, answered := f.answers[ref]; !answered && !asked[ref] {
			asked[ref] = true
			f.asked = append(f.asked, ref)
		}
	}
	after := map[int]int64{}
	for _, p := range f.positions {
		after[p.Lane] = p.After
	}
	reaches := func(l *lane, queue int) bool { // the page moves this reader past its rows
		from, ok := after[l.Lane]
		return ok && (f.reads == nil || f.reads(queue)) && l.readers[queue].cursor >= from
	}
	askOf := func(rows []storage.Row, reaches func(l *lane, queue int) bool) {
		for i := range rows {
			row := &rows[i]
			l := b.held.laneOf(f.seq, row.Lane)
			if l == nil || !l.keysUnknown || row.Message.Key == "" {
				continue
			}
			for _, queue := range b.routes.queuesOf(row.Message.Topic, row.Sinks) {
				r := &l.readers[queue]
				it := r.known[row.ID]
				there := it != nil && it.row.Message.ID == row.Message.ID || !row.Deferred && row.ID > r.cursor && !reaches(l, queue)
				if !there && r.keys[row.Message.Key] == nil {
					ask(storage.LaneKey{Lane: row.Lane, Key: row.Message.Key})
				}
			}
		}
	}
	if f.late != nil {
		askOf(f.late.rows, func(*lane, int) bool { return false })
	}
	askOf(f.page.Rows, reaches)
	for _, k := range f.keys {
		if k.fromDatabase && !k.blocked {
			ask(storage.LaneKey{Lane: k.lane.Lane, Key: k.ref.key})
		}
	}
	return len(f.asked) > 0
}

// recall blocks a key that the lane didn't know, if the database said so, and says whether
// the database was asked. If the message that the key waited for is in memory, though the
// key is not, it was delivered, and the database doesn't know it yet.
func (b *blockedKeys) recall(l *lane, ref keyRef) (ok bool) {
	found, ok := b.answers[storage.LaneKey{Lane: l.Lane, Key: ref.key}]
	holder := none
	for _, blocked := range found {
		if slices.Contains(b.routes.queuesOf(blocked.Topic, blocked.Sinks), ref.queue) && l.item(ref.queue, blocked.ID) == nil {
			holder = lowestSet(holder, blocked.ID)
		}
	}
	if holder != none {
		b.toForget = append(b.toForget, b.blockAgain(l, ref, holder))
	}
	return ok
}

// blockAgain has a key wait as the database said. What was dropped of it, when it was forgotten, is somewhere above
// the gap.
func (b *blockedKeys) blockAgain(l *lane, ref keyRef, holder int64) *key {
	k := l.key(ref)
	k.blocked, k.blockedBy, k.fromDatabase = true, holder, true
	b.count++
	if gap := k.reader().gap; gap != none {
		k.dropAt(gap + 1)
	}
	return k
}

// mayGoOn says whether the key's rows may be read on: nothing blocks it any more. If the database had named what blocked
// the key, it must have been asked again; its answer may block the key once more.
func (b *blockedKeys) mayGoOn(k *key) bool {
	if k.fromDatabase && !k.blocked && b.recall(k.lane, k.ref) {
		k.fromDatabase = k.blocked
	}
	return !k.blocked && !k.fromDatabase
}

// pollBlocked asks what has to be known of blocked keys, now and then. Lanes that don't know
// all of theirs, as they were just taken over or had too many, are told, if there is room. And
// keys in memory ask whether the retries that they wait for are still there: who knows SQL may
// have taken one away, and its key would wait for ever.
func (b *blockedKeys) pollBlocked(now time.Time) *fetch {
	if !b.lanesAskAt.After(now) {
		f := &fetch{kind: readBlocked, limit: b.most + 1, forgotten: b.forgotten}
		for _, l := range b.held.sortedLanes() {
			if l.keysUnknown && !l.draining {
				f.lanes = append(f.lanes, l.Lane)
				continue
			}
			for i := range l.readers {
				for _, k := range l.readers[i].keys {
					if k.blocked {
						f.limit--
					}
				}
			}
		}
		if len(f.lanes) > 0 && f.limit > 1 {
			b.lanesAskAt = now.Add(blockedInterval)
			return f
		}
	}
	if b.count == 0 || b.keysAskAt.After(now) {
		return nil
	}
	b.keysAskAt = now.Add(blockedInterval)
	f := &fetch{kind: readBlockers, holders: map[*key]int64{}}
	asked := map[storage.LaneKey]bool{}
	for _, l := range b.held.lanes {
		for i := range l.readers {
			for name, k := range l.readers[i].keys {
				if len(f.asked) == blockersTogether {
					return f
				}
				if !k.blocked || l.draining || l.item(i, k.blockedBy) != nil {
					continue
				}
				f.holders[k] = k.blockedBy
				if at := (storage.LaneKey{Lane: l.Lane, Key: name}); !asked[at] {
					asked[at] = true
					f.asked = append(f.asked, at)
				}
			}
		}
	}
	if len(f.asked) == 0 {
		return nil
	}
	return f
}

// mergeBlocked takes in the blocked keys of lanes that didn't know all of theirs. It ignores an answer that may be
// incomplete: one that met its limit, or during which keys were forgotten. What is in memory is newer than the answer.
func (b *blockedKeys) mergeBlocked(f *fetch) {
	if len(f.blocked) >= f.limit || b.forgotten != f.forgotten {
		return
	}
	holders := map[*lane]map[keyRef]int64{}
	for _, number := range f.lanes {
		if l := b.held.laneOf(f.seq, number); l != nil && !l.draining {
			holders[l] = map[keyRef]int64{}
		}
	}
	for _, blocked := range f.blocked {
		l := b.held.lanes[blocked.Lane]
		if holders[l] == nil || blocked.Key == "" {
			continue
		}
		for _, queue := range b.routes.queuesOf(blocked.Topic, blocked.Sinks) {
			ref := keyRef{queue, blocked.Key}
			if r := &l.readers[queue]; r.keys[blocked.Key] != nil || r.known[blocked.ID] != nil {
				continue
			}
			if first, ok := holders[l][ref]; !ok || blocked.ID < first {
				holders[l][ref] = blocked.ID // of several, the first goes first
			}
		}
	}
	for l, keys := range holders {
		for ref, holder := range keys {
			b.blockAgain(l, ref, holder)
		}
		l.keysUnknown = false
		if b.control.pauses == nil { // else it may also be one of paused rows
			for i := range l.readers {
				l.readers[i].gap = none
			}
		}
	}
}

// mergeBlockers unblocks keys whose holder is gone: its state had been written before the read began, and the read didn't
// meet it. If other messages hold the key, the one with the lowest id becomes the holder.
func (b *blockedKeys) mergeBlockers(f *fetch) {
	first := map[*lane]map[keyRef]int64{}
	for _, blocked := range f.blocked {
		l := b.held.lanes[blocked.Lane]
		if first[l] == nil {
			first[l] = map[keyRef]int64{}
		}
		for _, queue := range b.routes.queuesOf(blocked.Topic, blocked.Sinks) {
			ref := keyRef{queue, blocked.Key}
			if id, there := first[l][ref]; !there || blocked.ID < id {
				first[l][ref] = blocked.ID
			}
		}
	}
	for k, holder := range f.holders {
		if !k.blocked || k.blockedBy != holder || k.reader().known[holder] != nil || b.held.laneOf(f.seq, k.lane.Lane) != k.lane {
			continue
		}
		switch now, there := first[k.lane][k.ref]; {
		case !there:
			b.unblock(k)
			b.queues[k.ref.queue].enqueue(k)
			k.lane.forget(k)
		case now != holder && k.reader().known[now] == nil:
			k.blockedBy, k.fromDatabase = now, true
		}
	}
}
