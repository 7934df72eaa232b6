package relay

import (
	"slices"
	"time"
)

// maxHeldKeys bounds the keys in memory that wait for another attempt: with their
// maps they take about half a KiB each. Where there are more, those that came last
// are forgotten as soon as their retry is written, and their lane is untold: the
// database, which knows them all, is asked about each key that is met there, with
// one question a page. So a million of them cost no more than these, and hold up
// nobody.
const maxHeldKeys = 10_000

// heldInterval is how often untold lanes are told again, if there are few enough, and
// how often heldTogether keys are asked whether their retry is still there.
const (
	heldInterval = 10 * time.Second
	heldTogether = 500
)

// holding is what the engine knows of keys that wait for another attempt.
type holding struct {
	most      int                   // keys in memory: maxHeldKeys
	keys      int                   // in memory
	aside     []*key                // to be forgotten once the read that is under way has ended
	forgotten int64                 // how many were
	answers   map[LaneKey][]HeldKey // what the database said of a page's keys, while it is merged
	tellAt    time.Time             // when untold lanes are told
	askAt     time.Time             // when keys are asked for their retries
}

// block lets nothing of the item's key be sent but the item. What waits behind it is
// dropped, and read again later.
func (e *byLanes) block(it *item) {
	k := it.key
	if k == nil || k.lane.lost {
		return
	}
	if !k.held {
		e.holds.keys++
	}
	k.held, k.holder = true, it.row.ID
	for _, other := range slices.Clone(k.items) {
		if other.row.ID != k.holder {
			e.leaveBehind(other)
		}
	}
}

// leaveBehind drops an item of a held key; it is read again later.
func (e *byLanes) leaveBehind(it *item) {
	it.key.remove(it)
	if !it.row.Held {
		it.key.dropAt(it.row.ID)
	}
	e.drop(it)
}

// unblock lets the key go on if it is the item that it waits for.
func (e *byLanes) unblock(it *item) {
	if it.key != nil && it.key.holder == it.row.ID {
		e.letGo(it.key)
	}
}

// letGo ends a hold, and has what was left behind read again. After a holder that
// the database told of another one may come, if only one of the relays that have
// written them knew what the server has kept: it is asked before the key goes on.
func (e *byLanes) letGo(k *key) {
	if !k.held {
		return
	}
	k.held = false
	e.holds.keys--
	if k.told && !k.lagging {
		k.dropAt(k.lane.cursor + 1)
	}
	if k.lagging {
		e.read.behind = append(e.read.behind, k)
	}
}

// setAside forgets a key that waits for another attempt, where there are many. A
// read that is under way may bring its rows, or what the database said of it
// before: so it waits for the end of that, as settled rows do.
func (e *byLanes) setAside(k *key) {
	if k == nil || e.holds.keys <= e.holds.most {
		return
	}
	e.holds.aside = append(e.holds.aside, k)
	if e.poll.under == 0 {
		e.forgetAside()
	}
}

// forgetAside forgets what was set aside, if its retry is written and nothing of it
// is in memory. Where its followers begin is kept by the lane.
func (e *byLanes) forgetAside() {
	for _, k := range e.holds.aside {
		l := k.lane
		if e.holds.keys <= e.holds.most || !k.held || l.lost || k.flying > 0 || len(k.items) > 0 || l.known[k.holder] != nil {
			continue
		}
		if k.lagging {
			l.left[k.ref.outlet] = lowestSet(l.left[k.ref.outlet], k.behind)
		}
		k.held, k.lagging, l.untold = false, false, true
		delete(l.keys, k.ref)
		e.holds.keys--
		e.holds.forgotten++
	}
	clear(e.holds.aside)
	e.holds.aside = e.holds.aside[:0]
}

// askFirst asks the database which of a page's keys wait for another attempt, if
// they are of untold lanes and not in memory, and says whether it had to.
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
			if l := e.readLane(r.job, row.Lane); l != nil && l.untold && l.asks(e.outlets[e.routes.sink(row.Message.Topic)], row, r.job.kind) {
				asked[ref] = true
				ask = append(ask, ref)
			}
		}
		for _, k := range r.job.keys {
			ref := LaneKey{k.lane.Lane, k.ref.key}
			if _, answered := result.answers[ref]; k.unsure() && !answered && !asked[ref] {
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
		e.reads <- readJob{kind: readAmong, seq: result.job.seq, ask: ask, outer: &result}
	}
	return len(ask) > 0
}

// asks says that the lane doesn't know whether the row's key waits, and has to.
func (l *lane) asks(o *outlet, row *Row, kind readKind) bool {
	if !row.Held && kind != readOutlet && l.passed(o, row.ID) {
		return false
	}
	it := l.known[row.ID]
	return (it == nil || it.row.Message.ID != row.Message.ID) && l.keys[keyRef{o.index, row.Message.Key}] == nil
}

// answer goes on with a page for which the database was asked. A page that can't be
// merged is as good as one that was not read.
func (e *byLanes) answer(result readResult) {
	page := *result.job.outer
	if result.err != nil {
		if page.job.kind.visitsLanes() {
			e.owe(page)
		}
		page.err, page.left = result.err, page.job.positions // of a scan, which is in vain
		e.endRead(page)
		return
	}
	e.owe(result)
	if page.answers == nil {
		page.answers = map[LaneKey][]HeldKey{}
	}
	for _, key := range result.job.ask {
		page.answers[key] = nil
	}
	for _, key := range result.held {
		ref := LaneKey{key.Lane, key.Key}
		page.answers[ref] = append(page.answers[ref], key)
	}
	e.takeIn(page)
}

// recall makes the state of a key of which the lane was not told, and says whether
// it can: whether the database was asked. If its holder is in memory, though the key
// is not, it was delivered, and the database doesn't know it yet.
func (e *byLanes) recall(l *lane, ref keyRef) (ok bool) {
	found, ok := e.holds.answers[LaneKey{l.Lane, ref.key}]
	holder := none
	for _, held := range found {
		if e.routes.sink(held.Topic) == ref.outlet && l.known[held.ID] == nil {
			holder = lowestSet(holder, held.ID)
		}
	}
	if holder != none {
		e.holds.aside = append(e.holds.aside, e.holdAgain(l, ref, holder))
	}
	return ok
}

// holdAgain has a key wait as the database said. What follows it is somewhere above
// the place that the lane has kept.
func (e *byLanes) holdAgain(l *lane, ref keyRef, holder int64) *key {
	k := l.key(ref)
	k.held, k.holder, k.told = true, holder, true
	e.holds.keys++
	if left := l.left[ref.outlet]; left != none {
		k.dropAt(left + 1)
	}
	return k
}

// mayGoOn says whether nothing holds the key any more, as far as the database was
// asked.
func (e *byLanes) mayGoOn(k *key) bool {
	if k.unsure() && e.recall(k.lane, k.ref) && !k.held {
		k.told = false
	}
	return !k.held && !k.told
}

// lookAtHeld has untold lanes told of their keys, if there is room for all of them:
// of those that were just taken over, and of those that had too many.
func (e *byLanes) lookAtHeld(now time.Time) (readJob, bool) {
	if e.holds.tellAt.After(now) {
		return readJob{}, false
	}
	var lanes []int
	room := e.holds.most
	for _, l := range e.sortedLanes() {
		if l.untold && !l.draining {
			lanes = append(lanes, l.Lane)
			continue
		}
		for _, k := range l.keys {
			if k.held {
				room--
			}
		}
	}
	if len(lanes) == 0 || room <= 0 {
		return readJob{}, false
	}
	e.holds.tellAt = now.Add(heldInterval)
	return readJob{kind: readHeld, lanes: lanes, limit: room + 1, forgotten: e.holds.forgotten}, true
}

// lookForHolders asks whether the retries that keys wait for are still there: who
// knows SQL may have taken one away, and its key would wait for ever.
func (e *byLanes) lookForHolders(now time.Time) (readJob, bool) {
	if e.holds.keys == 0 || e.holds.askAt.After(now) {
		return readJob{}, false
	}
	e.holds.askAt = now.Add(heldInterval)
	job := readJob{kind: readHolders, holders: map[*key]int64{}}
	asked := map[LaneKey]bool{}
	for _, l := range e.lanes {
		for ref, k := range l.keys {
			if len(job.ask) == heldTogether {
				return job, true
			}
			if !k.held || l.draining || l.known[k.holder] != nil {
				continue
			}
			job.holders[k] = k.holder
			if at := (LaneKey{l.Lane, ref.key}); !asked[at] {
				asked[at] = true
				job.ask = append(job.ask, at)
			}
		}
	}
	return job, len(job.ask) > 0
}

// letHolderless lets go of keys whose retry is gone: it was written before the read
// began, and the read didn't meet it.
func (e *byLanes) letHolderless(result readResult) {
	there := map[int]map[keyRef]bool{}
	for _, held := range result.held {
		if there[held.Lane] == nil {
			there[held.Lane] = map[keyRef]bool{}
		}
		there[held.Lane][keyRef{e.routes.sink(held.Topic), held.Key}] = true
	}
	for k, holder := range result.job.holders {
		if k.held && k.holder == holder && k.lane.known[holder] == nil && e.readLane(result.job, k.lane.Lane) == k.lane && !there[k.lane.Lane][k.ref] {
			e.letGo(k)
			e.outlets[k.ref.outlet].line(k)
			k.lane.forget(k)
		}
	}
}

// tell lets lanes know all their keys that wait. What is in memory is newer than
// what was read; where more was forgotten meanwhile it isn't all.
func (e *byLanes) tell(result readResult) {
	if len(result.held) >= result.job.limit || e.holds.forgotten != result.job.forgotten {
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
			e.holdAgain(l, ref, holder)
		}
		l.untold = false
		for i := range l.left {
			l.left[i] = none
		}
	}
}
