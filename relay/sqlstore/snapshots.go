package sqlstore

import "sync"

// snapshots tell, for PostgreSQL, where rows can still appear. Ids are given out
// in order, but transactions commit in any order: a row may appear below others
// that were read long ago.
//
// A writer has its transaction's number (xid) before it has an id, as the table
// declares writer_xid before id. So, if a transaction X of ours began to get
// its number after we knew that the id m had been given out, then every
// transaction with a number above X gets ids above m only. The pair (X, m) is a
// checkpoint, and
//
//	floor(x) = max { m : (X, m) is a checkpoint and X < x }
//
// is below every id that the transaction x can have written, or will write.
//
// For a read with the snapshot S after a read with the snapshot P:
//
//   - No row can appear any more at or below floor(xmin(S)): whoever is still
//     to commit has a number of at least xmin(S).
//   - The transactions whose rows S shows and P didn't are those that were open
//     in P and have ended in S, and those from xmax(P) on that have ended in S.
//     Note that the latter may have been running when P was taken: xmax is one
//     more than the highest number that had *ended*. Nothing appeared at or
//     below the lowest of their floors.
//
// The snapshots have no numbers of subtransactions; a subtransaction's rows
// become visible with its top transaction, whose number is the one that
// writer_xid forces to be given first.
//
// A lane that was leased between P and S is read from its mark under S or a
// later snapshot, so that what appeared in it before S is met on the way. But
// what appears later is told only once, to the read that comes next: the caller
// has to apply LateAfter to all its lanes, also to those that this read didn't
// visit.
type snapshots struct {
	mu          sync.Mutex
	previous    *snapshot // of the last read that returned
	server      string    // that it was read from, in which epoch
	run         int       // how often all was forgotten
	given       int64     // the highest id that is known to have been given out
	checkpoints checkpoints
}

// token is what was known when a statement began.
type token struct {
	given int64
	run   int // a restart makes older tokens worthless
}

// before returns what is to be shown to wrote when a statement that begins now
// has returned.
func (h *snapshots) before() token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return token{h.given, h.run}
}

// stale says that ids were given out since the last checkpoint.
func (h *snapshots) stale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.checkpoints) == 0 || h.checkpoints.highest() < h.given
}

// wrote makes a checkpoint: the transaction xid got its number after the token
// had been handed out.
func (h *snapshots) wrote(xid uint64, began token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if began.run == h.run {
		h.checkpoints.add(xid, began.given)
	}
}

// read notes a read that returned, and says what its page promises. The server
// is whatever tells one run of a server from another.
func (h *snapshots) read(server string, s snapshot, given int64) (lateAfter, final int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != "" && (server != h.server || given < h.given) || h.previous != nil && s.xmax < h.previous.xmax {
		return h.restart(server, s, given)
	}
	lateAfter, final = h.lateAfter(s), h.checkpoints.floor(s.xmin)
	h.previous, h.server, h.given = &s, server, given
	h.checkpoints.prune(s.xmin)
	return lateAfter, final
}

// restart forgets everything: this is another server, or one that was restored,
// and the numbers say nothing about those of before.
func (h *snapshots) restart(server string, s snapshot, given int64) (lateAfter, final int64) {
	h.previous, h.server, h.given, h.checkpoints = &s, server, given, nil
	h.run++
	return 0, 0
}

// learn notes an id that was given out, and by which server, before the first read.
func (h *snapshots) learn(server string, given int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.server, h.given = server, given
}

// distrust forgets all that is concluded from.
func (h *snapshots) distrust() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.previous, h.given, h.checkpoints = nil, 0, nil
	h.run++
}

// lateAfter is below all that appeared between the previous snapshot and this
// one; -1 if nothing did.
func (h *snapshots) lateAfter(s snapshot) int64 {
	if h.previous == nil {
		return -1
	}
	for _, xid := range h.previous.open { // floors ascend: the first is the lowest
		if s.sees(xid) {
			return h.checkpoints.floor(xid)
		}
	}
	if s.endedFrom(h.previous.xmax) {
		return h.checkpoints.floor(h.previous.xmax)
	}
	return -1
}
