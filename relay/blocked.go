package relay

import (
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Blocked keys. A message blocks its key while it waits for another attempt, is being parked, or is parked and holds its key.
// Meanwhile no other message of the key is sent: the key's later rows are dropped from memory, and the position from which to
// read them is kept. What must hold: a blocked key is in memory, unless keysUnknown is set for its lane. If keysUnknown is
// set, the relay asks the database about each key that isn't in memory before it admits a row of the key.

const (
	// maxBlockedKeys is the maximum number of blocked keys in memory, each of which takes about half a KiB. If more keys are
	// blocked, the relay forgets a blocked key as soon as the key's retry is written. After that, each page of the key's lane needs
	// one more query, which asks the database which of the page's keys are blocked. So a million blocked keys take only as much
	// memory as maxBlockedKeys keys.
	maxBlockedKeys = 10_000

	// blockedInterval is the time between two reads of the blocked keys of lanes with keysUnknown. It is also the time between two
	// checks of whether the messages that block keys in memory still exist. One check covers at most blockersTogether keys.
	blockedInterval  = 10 * time.Second
	blockersTogether = 500
)

// blockedKeys keeps track of the blocked keys of all lanes.
type blockedKeys struct {
	held    *heldLanes
	routes  *router
	queues  []*sinkQueue
	poll    *polling
	control *control // contains the pauses in force

	most       int                                      // the maximum number of blocked keys in memory: maxBlockedKeys
	count      int                                      // how many blocked keys are in memory
	toForget   []*key                                   // keys to forget when the read in progress has ended
	forgotten  int64                                    // counts forgotten keys, to detect whether any was forgotten during a read
	resuming   []*key                                   // unblocked keys whose dropped rows must be read
	answers    map[storage.LaneKey][]storage.BlockedKey // while a page is merged: the database's answers about the page's keys
	lanesAskAt time.Time                                // when the blocked keys of lanes with keysUnknown are read next
	keysAskAt  time.Time                                // when the messages that block keys in memory are checked next
}

// block blocks the item's key, so that only this item of the key is sent. The key's other waiting items are dropped, and read
// again later.
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

// leaveBehind drops an item of a blocked key, to be read again later.
func (b *blockedKeys) leaveBehind(it *item) {
	it.key.remove(it)
	if !it.row.Deferred {
		it.key.dropAt(it.row.ID)
	}
	b.held.drop(it)
}

// drop removes an unsent item from memory. The caller must remember a position from which to read it again.
func (h *heldLanes) drop(it *item) {
	it.stage = dropped
	it.queue.release(it)
	h.forget(it)
}

// unblock unblocks a key, and schedules a read of its dropped rows. If the database reported the key as blocked, a second
// message may block it, too: after a failover, two relays may each have written a retry. So the relay asks the database again
// before it sends other messages of the key.
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

// forgetSoon forgets a blocked key if too many are in memory. A read in progress may return the key's rows, or an older answer
// about the key. So the key, like a settled row, is forgotten only when that read has ended.
func (b *blockedKeys) forgetSoon(k *key) {
	if k == nil || b.count <= b.most {
		return
	}
	b.toForget = append(b.toForget, k)
	if b.poll.under == 0 {
		b.forgetKeys()
	}
}

// forgetKeys forgets the keys in toForget whose retry is written and that have no items in memory. It lowers reader.gap below the
// keys' dropped rows, so that these rows are read again later.
func (b *blockedKeys) forgetKeys() {
	for _, k := range b.toForget {
		l := k.lane
		if b.count <= b.most || !k.blocked || l.lost || k.inFlight > 0 || len(k.items) > 0 || len(k.outcomes) > 0 || k.reader().known[k.blockedBy] != nil {
			continue
		}
		if k.dropped {
			k.reader().leaveOut(k.resumeFrom + 1)
		}
		k.blocked, k.dropped, l.keysUnknown = false, false, true
		l.forget(k)
		b.count--
		b.forgotten++
	}
	clear(b.toForget)
	b.toForget = b.toForget[:0]
}

// askFirst reports whether the database must be asked about keys before the read is merged, and lists these keys in f.asked.
// These are keys of rows in lanes with keysUnknown, and unblocked keys that the database had reported as blocked (fromDatabase).
// If the read has just returned the database's answers, askFirst first stores them. Within one read, it lists each key at most once.
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
		return false // these reads admit no rows
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
	reaches := func(l *lane, queue int) bool { // whether merging this page moves the queue's cursor in this lane past the page's rows
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

// recall blocks a key if the database reported it as blocked. It returns false if the database wasn't asked about the key. It
// ignores a reported message that is in memory: that message was delivered, but its outcome is not yet written to the database.
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

// blockAgain blocks a key that the database reported as blocked. If the key was forgotten before, its dropped rows may be anywhere
// above reader.gap.
func (b *blockedKeys) blockAgain(l *lane, ref keyRef, holder int64) *key {
	k := l.key(ref)
	k.blocked, k.blockedBy, k.fromDatabase = true, holder, true
	b.count++
	if gap := k.reader().gap; gap != none {
		k.dropAt(gap + 1)
	}
	return k
}

// mayContinue reports whether the key's dropped rows may be admitted now. While a message blocks the key, the rows must wait. If
// the database had reported the key as blocked, the relay must ask the database again before it admits the rows; the new answer may
// block the key again.
func (b *blockedKeys) mayContinue(k *key) bool {
	if k.fromDatabase && !k.blocked && b.recall(k.lane, k.ref) {
		k.fromDatabase = k.blocked
	}
	return !k.blocked && !k.fromDatabase
}

// pollBlocked returns a read about blocked keys if one is due. One kind of read fetches the blocked keys of lanes with
// keysUnknown, if memory has room for more keys. A lane has keysUnknown after it was acquired, or if a blocked key of the lane was
// forgotten. The other kind checks whether the messages that block keys in memory still exist: otherwise, if an operator deleted
// such a message with SQL, its key would stay blocked forever.
func (b *blockedKeys) pollBlocked(now time.Time) *fetch {
	if !b.lanesAskAt.After(now) {
		f := &fetch{kind: readBlocked, limit: b.most + 1, forgotten: b.forgotten}
		var others []*lane
		for _, l := range b.held.sortedLanes() {
			if l.keysUnknown && !l.draining {
				f.lanes = append(f.lanes, l.Lane)
			} else {
				others = append(others, l)
			}
		}
		if len(f.lanes) > 0 { // counting takes long if memory has many keys
			f.limit -= blockedKeysIn(others)
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

// blockedKeysIn counts the blocked keys of lanes.
func blockedKeysIn(lanes []*lane) (n int) {
	for _, l := range lanes {
		for i := range l.readers {
			for _, k := range l.readers[i].keys {
				if k.blocked {
					n++
				}
			}
		}
	}
	return n
}

// mergeBlocked blocks the keys that a read of blocked keys has returned, and clears keysUnknown for the lanes of the read. If
// the read reached its limit, or if keys were forgotten meanwhile, its result may be incomplete and is ignored. Keys and
// messages in memory stay as they are, since their state is newer than the read's result.
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
				holders[l][ref] = blocked.ID // if several messages block the key, the one with the lowest id is sent first
			}
		}
	}
	for l, keys := range holders {
		for ref, holder := range keys {
			b.blockAgain(l, ref, holder)
		}
		l.keysUnknown = false
		if b.control.pauses == nil { // while pauses are in force, the gap may also be due to paused rows
			for i := range l.readers {
				l.readers[i].gap = none
			}
		}
	}
}

// mergeBlockers unblocks keys whose blocking message is gone: the retry that blocks the key was written before the read began,
// and the read didn't find it. If the read found other messages that block the key, the one with the lowest id blocks it from now
// on.
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
