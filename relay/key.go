package relay

// key is the order of one key within one sink. It exists while the relay has
// something to remember of it.
//
// Of a key, at most one batch is under way. What comes meanwhile waits in
// memory. While a retry or a park of one of its messages is not over, the key
// is held: its followers are dropped from memory, and only the place to read
// them from again is kept, so that any number of them costs nothing.
type key struct {
	ref keyRef

	flying  int     // items in the batch that is under way
	batch   int     // items in the batch that is being made
	queued  int     // items in the outlet's queue
	waiting []*item // in memory, behind those

	held   bool  // no item but holder may be sent
	holder int64 // the id of the message that waits for another attempt, or is being parked

	lagging bool  // rows of the key above behind were dropped: they are to be read again
	behind  int64 // the place to read from
}

// keyRef names a key: the same key in two sinks is two keys.
type keyRef struct {
	outlet int
	key    string
}

// dropAt remembers that the row was dropped and must be read again.
func (k *key) dropAt(id int64) {
	if !k.lagging || id-1 < k.behind {
		k.behind = id - 1
	}
	k.lagging = true
}

// idle says that there is nothing to remember.
func (k *key) idle() bool {
	return k.flying == 0 && k.queued == 0 && len(k.waiting) == 0 && !k.held && !k.lagging
}
