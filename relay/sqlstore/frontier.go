package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// frontier knows where rows may still appear. Ids are given out in order, but
// transactions commit in any order: a row may appear below others that were read
// long ago. So each page promises two things:
//
//   - SafeID: no row can appear any more at or below this id.
//   - LateAfter: what has appeared since the page before has a higher id than this
//     one; negative if nothing has.
//
// In come the first line of each read, the ids of its rows, and the numbers that
// transactions of ours have had. A promise may say less than is true, which costs a
// longer way to read again; it never says more. What a read has seen is told by its
// own page: one that fails changes nothing, and the page after it tells the same.
//
// The answers, by what a database shows:
//
//   - [oneWriter]: one transaction writes at a time (SQLite).
//   - [snapshots]: a read tells which transactions it sees (PostgreSQL).
//   - [openTx]: now and then, the transactions that are open are listed (MySQL,
//     MariaDB, SQL Server, Oracle).
//   - [timeBound]: nobody can see the open transactions, and each is taken to be over
//     after a set time (the same databases, if this user lacks the right to see them or
//     several servers write). It is a part of openTx, as the right may be taken
//     away at any time.
//
// before and wrote may be called concurrently; the others by who reads, in turn.
type frontier interface {
	// start begins anew, before lanes are read, with the highest id that this server
	// has given out: another one may have answered when the table was opened.
	start(server string, given int64)

	// before is what is known before a statement of ours. If the statement's
	// transaction has a number, wrote is told, with what before returned.
	before() token
	wrote(xid uint64, began token)

	// prepare finds out, before a read, what the read's page is to promise, if the
	// first line doesn't tell.
	prepare(ctx context.Context) error

	// idle says, of a read's first line, that no row has appeared since the page
	// before. It is asked only where the token says current.
	idle(first backend.FirstLine) bool

	// guarantee has the page of a read say what is concluded from its first line and
	// its rows.
	guarantee(ctx context.Context, first backend.FirstLine, began token, page *storage.Page) error

	// learn is told of an id that was given out, beside those of rows.
	learn(id int64)

	// failed is told that a read failed: the server may be another one afterwards.
	failed()

	// reset forgets what promises rested on: from now on they rest on what is seen from now on. See FoundLate in
	// [storage.LaneStore].
	reset()
}

// openFrontier makes the answer that fits the database. Given is the highest id that was
// given out; unordered is as in [dialect.Fit].
func (s *Store) openFrontier(ctx context.Context, given int64, unordered bool) error {
	switch s.capabilities.Frontier {
	case backend.OneWriter:
		s.frontier = oneWriter{}
	case backend.Snapshots:
		s.frontier = &snapshots{given: given}
	case backend.OpenTransactions:
		o := newOpenTx(given, time.Now())
		o.db = openTxLister{s.backend.(backend.TransactionLister), s.lastID, s.dialect, s.table, s.options.LongestTransaction}
		s.frontier = o
		return o.open(ctx, unordered, &s.Findings)
	default:
		return fmt.Errorf("the backend of %s doesn't say where rows may still appear: give it a Capabilities.Frontier", s.dialect.Name())
	}
	return nil
}

// token is what was known when a statement began.
type token struct {
	given   int64 // the highest id that was given out
	run     int   // a restart makes older tokens worthless
	current bool  // the first line alone says whether anything has appeared; see [snapshots]
}

// oneWriter is the frontier where one transaction writes at a time: ids are committed
// in their order, so that nothing appears at or below the last one.
type oneWriter struct{}

func (oneWriter) guarantee(_ context.Context, first backend.FirstLine, _ token, page *storage.Page) error {
	page.Epoch, page.LastID, page.SafeID, page.LateAfter = first.Server, first.LastID, first.LastID, -1
	return nil
}

func (oneWriter) start(string, int64)           {}
func (oneWriter) before() token                 { return token{} }
func (oneWriter) wrote(uint64, token)           {}
func (oneWriter) prepare(context.Context) error { return nil }
func (oneWriter) idle(backend.FirstLine) bool   { return false }
func (oneWriter) learn(int64)                   {}
func (oneWriter) failed()                       {}
func (oneWriter) reset()                        {}

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

// idle: whatever has appeared since the page before has an id above LateAfter, and not above LastID. So nothing has if
// LateAfter isn't below LastID.
func (h *snapshots) idle(first backend.FirstLine) bool {
	s, err := parseSnapshot(first.Snapshot)
	if err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.previous == nil || h.serverChanged(first.Server, s, first.LastID) {
		return false
	}
	late := h.lateAfter(s)
	return late < 0 || late >= first.LastID
}

// guarantee concludes from the read's snapshot, and remembers it. The server is whatever tells
// one run of a server from another. On another server, or one that was restored, the numbers
// say nothing about those of before, and all is forgotten.
func (h *snapshots) guarantee(_ context.Context, first backend.FirstLine, began token, page *storage.Page) error {
	s, err := parseSnapshot(first.Snapshot)
	if err != nil {
		return err
	}
	page.Epoch, page.LastID = first.Server, first.LastID
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.serverChanged(first.Server, s, first.LastID) {
		page.LateAfter, page.SafeID = 0, 0
		h.checkpoints = nil
		h.run++
	} else {
		page.LateAfter = h.lateAfter(s)
		page.SafeID = h.checkpoints.pass(s.xmin)
	}
	h.previous, h.server, h.given = &s, first.Server, first.LastID
	if first.XID != 0 && began.run == h.run {
		h.checkpoints.add(first.XID, began.given)
	}
	return nil
}

// serverChanged says that this is another server than before, or one that was restored.
func (h *snapshots) serverChanged(server string, s snapshot, given int64) bool {
	return h.server != "" && (server != h.server || given < h.given) || h.previous != nil && s.xmax < h.previous.xmax
}

// lateAfter is below all that appeared between the previous snapshot and this
// one; -1 if nothing did.
func (h *snapshots) lateAfter(s snapshot) int64 {
	if h.previous == nil {
		return -1
	}
	lowest, ended := h.previous.xmax, s.endedFrom(h.previous.xmax)
	if i := slices.IndexFunc(h.previous.open, s.sees); i >= 0 { // floors ascend: the first is the lowest
		lowest, ended = h.previous.open[i], true
	}
	if !ended {
		return -1
	}
	late, _ := h.checkpoints.floor(lowest)
	return late
}

// reset keeps the previous snapshot: without checkpoints the next page reports all that has appeared since as above 0. Without
// the snapshot it would report nothing, and a row that appeared between the two pages would be left to a sweep.
func (h *snapshots) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given, h.checkpoints = 0, nil
	h.run++
}

// Each first line tells all.
func (h *snapshots) prepare(context.Context) error { return nil }
func (h *snapshots) learn(int64)                   {}
func (h *snapshots) failed()                       {}

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

// checkpoint: a transaction with a higher number than xid has ids above id only.
type checkpoint struct {
	xid uint64
	id  int64
}

// checkpoints are sorted by xid, and so by id. One that is missing only makes a floor
// lower, which costs a longer way to read again.
type checkpoints []checkpoint

// maxCheckpoints bounds the list.
const maxCheckpoints = 512

// floor is below every id that a transaction with this number or a higher one can have written
// or will write; 0 if nothing is known. It is the id of the last checkpoint with a lower number; lower is how many such
// checkpoints there are.
func (c checkpoints) floor(xid uint64) (id int64, lower int) {
	lower, _ = slices.BinarySearchFunc(c, xid, func(c checkpoint, xid uint64) int { return cmp.Compare(c.xid, xid) })
	if lower > 0 {
		id = c[lower-1].id
	}
	return id, lower
}

// add makes a checkpoint.
func (c *checkpoints) add(xid uint64, id int64) {
	floor, at := c.floor(xid)
	if at > 0 && floor >= id {
		return // an earlier one says more
	}
	end := at
	for end < len(*c) && (*c)[end].id <= id {
		end++ // says less than this one
	}
	list := slices.Replace(*c, at, end, checkpoint{xid, id})
	if len(list) > maxCheckpoints { // drop every other one of the older half: the list is the sparser the older
		kept := list[:0]
		for i, each := range list {
			if i%2 == 0 || i >= maxCheckpoints/2 {
				kept = append(kept, each)
			}
		}
		list = kept
	}
	*c = list
}

// pass returns the floor of the lowest transaction that may still end, and drops the checkpoints
// before the one that it comes from: no floor is going to come from these.
func (c *checkpoints) pass(lowest uint64) (floor int64) {
	floor, at := c.floor(lowest)
	if at > 1 {
		*c = slices.Delete(*c, 0, at-1)
	}
	return floor
}
