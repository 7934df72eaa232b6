package relay

import "slices"

// key is the order of one key within one sink. It exists while the relay has
// something to remember of it.
//
// Of a key, one batch at most is under way; the rest waits here, lowest id
// first, while the key stands once in its outlet's queue. While a retry or a
// park of one of its messages is not over, the key is held: its followers are
// dropped from memory, and only the place to read them from again is kept, so
// that any number of them costs nothing.
type key struct {
	ref  keyRef
	lane *lane

	items  []*item // that wait, by id
	flying int     // items in the batch that is under way
	queued bool    // stands in the outlet's queue
	aside  *item   // refused, which doesn't count yet: nothing of the key is sent until it is asked again

	held   bool  // no item but holder may be sent
	holder int64 // the id of the message that waits for another attempt, or is being parked; or that was it
	told   bool  // the holder is what the database said: others of the key may wait for another attempt, too

	lagging bool  // rows of the key above behind were dropped: they are to be read again
	behind  int64 // the place to read from
	after   *item // if it is in memory: another message that has the id of a row that was dropped
}

// keyRef names a key: the same key in two sinks is two keys.
type keyRef struct {
	outlet int
	key    string
}

// add puts an item among those that wait.
func (k *key) add(it *item) {
	at := len(k.items)
	for at > 0 && k.items[at-1].row.ID > it.row.ID {
		at--
	}
	k.items = slices.Insert(k.items, at, it)
}

// remove takes an item out of those that wait.
func (k *key) remove(it *item) {
	if at := slices.Index(k.items, it); at >= 0 {
		k.items = slices.Delete(k.items, at, at+1)
	}
}

// take takes up to n of the items that may be sent now.
func (k *key) take(n int) []*item {
	if k.flying > 0 {
		return nil
	}
	if k.held {
		return k.takeHolder()
	}
	n = min(n, len(k.items))
	taken := slices.Clone(k.items[:n])
	k.items = slices.Delete(k.items, 0, n)
	return taken
}

func (k *key) takeHolder() []*item {
	for _, it := range k.items {
		if it.row.ID == k.holder {
			k.remove(it)
			return []*item{it}
		}
	}
	return nil
}

// dropAt remembers that the row was dropped and must be read again.
func (k *key) dropAt(id int64) {
	if !k.lagging || id-1 < k.behind {
		k.behind = id - 1
	}
	k.lagging = true
}

// mustWait says that it is too early to read what was dropped: another message has its
// id, or what the database would say of the key isn't written.
func (k *key) mustWait() bool {
	return k.after != nil && k.lane.known[k.after.row.ID] == k.after || k.unsure() && k.lane.known[k.holder] != nil
}

// unsure says that the database has to be asked whether another message of the key
// waits for another attempt. Nothing of the key is taken before.
func (k *key) unsure() bool { return k.told && !k.held }

// idle says that there is nothing to remember.
func (k *key) idle() bool {
	return k.flying == 0 && len(k.items) == 0 && !k.held && !k.lagging
}
