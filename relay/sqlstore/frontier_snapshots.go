package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// snapshots is the frontier of PostgreSQL, where a read tells which transactions it
// sees. A writer has its transaction's number (xid) before it has an id, as the table
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

func (h *snapshots) start(server string, given int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.server, h.given = server, given
}

// before: the token is current if no id was given out since the last checkpoint. If
// one was, the next read has to take a number, so that the safe id follows also while
// nothing is settled.
func (h *snapshots) before() token {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.checkpoints)
	return token{h.given, h.run, n > 0 && h.checkpoints[n-1].id >= h.given}
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

// idle: what has appeared since the page before has an id that was given out, and is
// above LateAfter.
func (h *snapshots) idle(first backend.FirstLine) bool {
	s, err := parseSnapshot(first.Snapshot)
	if err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.previous == nil || h.elsewhere(first.Server, s, first.LastID) {
		return false
	}
	late := h.lateAfter(s)
	return late < 0 || late >= first.LastID
}

func (h *snapshots) promise(_ context.Context, first backend.FirstLine, began token, page *storage.Page) error {
	s, err := parseSnapshot(first.Snapshot)
	if err != nil {
		return err
	}
	page.Epoch, page.LastID = first.Server, first.LastID
	page.LateAfter, page.SafeID = h.read(first.Server, s, first.LastID)
	if first.XID != 0 {
		h.wrote(first.XID, began)
	}
	return nil
}

// read notes a read that returned, and says what its page promises. The server
// is whatever tells one run of a server from another. On another server, or one that
// was restored, the numbers say nothing about those of before, and all is forgotten.
func (h *snapshots) read(server string, s snapshot, given int64) (lateAfter, final int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.elsewhere(server, s, given) {
		h.checkpoints = nil
		h.run++
	} else {
		lateAfter, final = h.lateAfter(s), h.checkpoints.floor(s.xmin)
		h.checkpoints.prune(s.xmin)
	}
	h.previous, h.server, h.given = &s, server, given
	return lateAfter, final
}

// elsewhere says that this is another server than before, or one that was restored.
func (h *snapshots) elsewhere(server string, s snapshot, given int64) bool {
	return h.server != "" && (server != h.server || given < h.given) || h.previous != nil && s.xmax < h.previous.xmax
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

func (h *snapshots) distrust() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.previous, h.given, h.checkpoints = nil, 0, nil
	h.run++
}

// Each first line tells all.
func (h *snapshots) look(context.Context) error { return nil }
func (h *snapshots) learn(int64)                {}
func (h *snapshots) failed()                    {}

// snapshot is what PostgreSQL's pg_current_snapshot says: which transactions'
// changes a statement saw.
type snapshot struct {
	xmin uint64   // all lower transactions had ended
	xmax uint64   // one more than the highest that had ended; from here on nothing was seen
	open []uint64 // between the two, those that had not ended, ascending
}

// parseSnapshot reads the text form, xmin:xmax:open,open,…
func parseSnapshot(text string) (snapshot, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("read snapshot %q: want three parts", text)
	}
	numbers := parts[:2]
	if parts[2] != "" {
		numbers = append(numbers, strings.Split(parts[2], ",")...)
	}
	values := make([]uint64, len(numbers))
	for i, number := range numbers {
		value, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return snapshot{}, fmt.Errorf("read snapshot %q: %w", text, err)
		}
		values[i] = value
	}
	return snapshot{xmin: values[0], xmax: values[1], open: values[2:]}, nil
}

// sees says whether the transaction had ended.
func (s snapshot) sees(xid uint64) bool {
	if xid < s.xmin || xid >= s.xmax {
		return xid < s.xmin
	}
	_, open := slices.BinarySearch(s.open, xid)
	return !open
}

// endedFrom says whether any transaction had ended that has this number or a
// higher one.
func (s snapshot) endedFrom(xid uint64) bool {
	if xid >= s.xmax {
		return false
	}
	at, _ := slices.BinarySearch(s.open, xid)
	return uint64(len(s.open)-at) < s.xmax-max(xid, s.xmin) || xid < s.xmin
}
