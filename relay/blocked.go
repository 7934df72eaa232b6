package relay

import (
	"slices"
	"time"
)

// Keys that wait. While a message of a key waits for another attempt, or is being parked,
// nothing else of the key is sent: its rows are dropped from memory, and a place is kept. What
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
	most      int                   // keys in memory: maxBlockedKeys
	keys      int                   // in memory
	aside     []*key                // to be forgotten once the read that is under way has ended
	forgotten int64                 // how many were
	answers   map[LaneKey][]HeldKey // what the database said of a page's keys, while it is merged
	tellAt    time.Time             // when lanes ask for their blocked keys
	askAt     time.Time             // when keys ask for their retries
}

// block lets nothing of the item's key be sent but the item. What waits behind it is
// dropped, and read again later.
func (e *byLanes) block(it *item) {
	k := it.key
	if k == nil || k.lane.lost {
		return
	}
	if !k.blocked {
		e.blocked.keys++
	}
	k.blocked, k.blockedBy = true, it.row.ID
	for _, other := range slices.Clone(k.items) {
		if other.row.ID != k.blockedBy {
			e.leaveBehind(other)
		}
	}
}

// leaveBehind drops an item of a blocked key; it is read again later.
func (e *byLanes) leaveBehind(it *item) {
	it.key.remove(it)
	if !it.row.Held {
		it.key.dropAt(it.row.ID)
	}
	e.drop(it)
}

// unblock lets the key go on if it is the item that it waits for.
func (e *byLanes) unblock(it *item) {
	if it.key != nil && it.key.blockedBy == it.row.ID {
		e.unblockKey(it.key)
	}
}

// unblockKey ends the wait of a key, and has what was left behind read again. After a
// message that the database told of another one may come, if only one of the relays that
// have written them knew what the server has kept: it is asked before the key goes on.
func (e *byLanes) unblockKey(k *key) {
	if !k.blocked {
		return
	}
	k.blocked = false
	e.blocked.keys--
	if k.fromDatabase && !k.dropped {
		k.dropAt(k.lane.cursor + 1)
	}
	if k.dropped {
		e.read.resuming = append(e.read.resuming, k)
	}
}

// setAside forgets a key that waits for another attempt, where there are many. A
// read that is under way may bring its rows, or what the database said of it
// before: so it waits for the end of that, as settled rows do.
func (e *byLanes) setAside(k *key) {
	if k == nil || e.blocked.keys <= e.blocked.most {
		return
	}
	e.blocked.aside = append(e.blocked.aside, k)
	if e.poll.under == 0 {
		e.forgetAside()
	}
}

// forgetAside forgets what was set aside, if its retry is written and nothing of it
// is in memory. Where its followers begin is kept by the lane.
func (e *byLanes) forgetAside() {
	for _, k := range e.blocked.aside {
		l := k.lane
		if e.blocked.keys <= e.blocked.most || !k.blocked || l.lost || k.inFlight > 0 || len(k.items) > 0 || l.known[k.blockedBy] != nil {
			continue
		}
		if k.dropped {
			l.forgottenFrom[k.ref.queue] = lowestSet(l.forgottenFrom[k.ref.queue], k.resumeFrom)
		}
		k.blocked, k.dropped, l.keysUnknown = false, false, true
		delete(l.keys, k.ref)
		e.blocked.keys--
		e.blocked.forgotten++
	}
	clear(e.blocked.aside)
	e.blocked.aside = e.blocked.aside[:0]
}

// askFirst asks the database which of a page's keys are blocked, where their lanes don't
// know, and says whether it had to.
func (e *byLanes) askFirst(result readResult) bool {
	var ask []LaneKey
	asked := map[LaneKey]bool{}
	collect := func(r *readResult) {
		if r.job.kind == readUnrouted {
			return // takes nothing
		}
		for i := range r.page.Rows {
			row := &r.page.Rows[i]
			ref := LaneKey{row.Lane, row.Message.Key}
			if _, answered := result.answers[ref]; ref.Key == "" || answered || asked[ref] {
				continue
			}
			if l := e.readLane(r.job, row.Lane); l != nil && l.keysUnknown && l.asks(e.queues[e.routes.sink(row.Message.Topic)], row, r.job.kind) {
				asked[ref] = true
				ask = append(ask, ref)
			}
		}
		for _, k := range r.job.keys {
			ref := LaneKey{k.lane.Lane, k.ref.key}
			if _, answered := result.answers[ref]; k.mustAsk() && !answered && !asked[ref] {
				asked[ref] = true
				ask = append(ask, ref)
			}
		}
	}
	collect(&result)
	if result.job.kind == readLate {
		collect(result.job.outer)
	}
	if len(ask) > 0 {
		e.reads <- readJob{kind: readBlockedAmong, seq: result.job.seq, ask: ask, outer: &result}
	}
	return len(ask) > 0
}

// asks says that the row would be admitted, and that the lane doesn't know whether its
// key is blocked.
func (l *lane) asks(q *sinkQueue, row *Row, kind readKind) bool {
	if !row.Held && kind != readSkipped && l.skips(q.index, row.ID) {
		return false
	}
	it := l.known[row.ID]
	return (it == nil || it.row.Message.ID != row.Message.ID) && l.keys[keyRef{q.index, row.Message.Key}] == nil
}

// recall blocks a key that the lane didn't know, if the database said so, and says whether
// the database was asked. If the message that the key waited for is in memory, though the
// key is not, it was delivered, and the database doesn't know it yet.
func (e *byLanes) recall(l *lane, ref keyRef) (ok bool) {
	found, ok := e.blocked.answers[LaneKey{l.Lane, ref.key}]
	holder := none
	for _, held := range found {
		if e.routes.sink(held.Topic) == ref.queue && l.known[held.ID] == nil {
			holder = lowestSet(holder, held.ID)
		}
	}
	if holder != none {
		e.blocked.aside = append(e.blocked.aside, e.blockAgain(l, ref, holder))
	}
	return ok
}

// blockAgain has a key wait as the database said. What follows it is somewhere above
// the place that the lane has kept.
func (e *byLanes) blockAgain(l *lane, ref keyRef, holder int64) *key {
	k := l.key(ref)
	k.blocked, k.blockedBy, k.fromDatabase = true, holder, true
	e.blocked.keys++
	if left := l.forgottenFrom[ref.queue]; left != none {
		k.dropAt(left + 1)
	}
	return k
}

// mayGoOn says whether nothing blocks the key any more, as far as the database was
// asked.
func (e *byLanes) mayGoOn(k *key) bool {
	if k.mustAsk() && e.recall(k.lane, k.ref) && !k.blocked {
		k.fromDatabase = false
	}
	return !k.blocked && !k.fromDatabase
}

// pollBlocked reads all blocked keys of lanes that don't know them, if there is room: of
// lanes that were just taken over, and of those that had too many.
func (e *byLanes) pollBlocked(now time.Time) (readJob, bool) {
	if e.blocked.tellAt.After(now) {
		return readJob{}, false
	}
	var lanes []int
	room := e.blocked.most
	for _, l := range e.sortedLanes() {
		if l.keysUnknown && !l.draining {
			lanes = append(lanes, l.Lane)
			continue
		}
		for _, k := range l.keys {
			if k.blocked {
				room--
			}
		}
	}
	if len(lanes) == 0 || room <= 0 {
		return readJob{}, false
	}
	e.blocked.tellAt = now.Add(blockedInterval)
	return readJob{kind: readBlocked, lanes: lanes, limit: room + 1, forgotten: e.blocked.forgotten}, true
}

// pollBlockers asks whether the retries that keys wait for are still there: who
// knows SQL may have taken one away, and its key would wait for ever.
func (e *byLanes) pollBlockers(now time.Time) (readJob, bool) {
	if e.blocked.keys == 0 || e.blocked.askAt.After(now) {
		return readJob{}, false
	}
	e.blocked.askAt = now.Add(blockedInterval)
	job := readJob{kind: readBlockers, holders: map[*key]int64{}}
	asked := map[LaneKey]bool{}
	for _, l := range e.lanes {
		for ref, k := range l.keys {
			if len(job.ask) == blockersTogether {
				return job, true
			}
			if !k.blocked || l.draining || l.known[k.blockedBy] != nil {
				continue
			}
			job.holders[k] = k.blockedBy
			if at := (LaneKey{l.Lane, ref.key}); !asked[at] {
				asked[at] = true
				job.ask = append(job.ask, at)
			}
		}
	}
	return job, len(job.ask) > 0
}

// unblockOrphans unblocks keys whose retry is gone: it was written before the read began,
// and the read didn't meet it.
func (e *byLanes) unblockOrphans(result readResult) {
	there := map[int]map[keyRef]bool{}
	for _, held := range result.held {
		if there[held.Lane] == nil {
			there[held.Lane] = map[keyRef]bool{}
		}
		there[held.Lane][keyRef{e.routes.sink(held.Topic), held.Key}] = true
	}
	for k, holder := range result.job.holders {
		if k.blocked && k.blockedBy == holder && k.lane.known[holder] == nil && e.readLane(result.job, k.lane.Lane) == k.lane && !there[k.lane.Lane][k.ref] {
			e.unblockKey(k)
			e.queues[k.ref.queue].enqueue(k)
			k.lane.forget(k)
		}
	}
}

// tell lets lanes know all their blocked keys. What is in memory is newer than what was
// read; where more was forgotten meanwhile it isn't all.
func (e *byLanes) tell(result readResult) {
	if len(result.held) >= result.job.limit || e.blocked.forgotten != result.job.forgotten {
		return
	}
	holders := map[*lane]map[keyRef]int64{}
	for _, number := range result.job.lanes {
		if l := e.readLane(result.job, number); l != nil && !l.draining {
			holders[l] = map[keyRef]int64{}
		}
	}
	for _, held := range result.held {
		l, ref := e.lanes[held.Lane], keyRef{e.routes.sink(held.Topic), held.Key}
		if holders[l] == nil || held.Key == "" || l.keys[ref] != nil || l.known[held.ID] != nil {
			continue
		}
		if first, ok := holders[l][ref]; !ok || held.ID < first {
			holders[l][ref] = held.ID // of several, the first goes first
		}
	}
	for l, keys := range holders {
		for ref, holder := range keys {
			e.blockAgain(l, ref, holder)
		}
		l.keysUnknown = false
		for i := range l.forgottenFrom {
			l.forgottenFrom[i] = none
		}
	}
}
