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

// frontier determines above which id rows may still appear. Ids are assigned in order, but transactions commit in any order, so a row
// may appear below rows that were read long ago. Therefore each page promises two things:
//
//   - SafeID: no row can appear at or below this id any more.
//   - LateAfter: every row that has appeared since the previous page has an id above LateAfter. A negative LateAfter means that all of
//     these rows are above the LastID of the previous page.
//
// A frontier derives these promises from each read's [backend.FirstLine], from the ids of the read's rows, and from the numbers of this
// store's own transactions. A promise is always true, but SafeID and LateAfter may be lower than necessary. Relays then read some rows a
// second time. A read that fails changes nothing, so the next page makes the same promises.
//
// The implementation depends on how the database reports open transactions:
//
//   - [oneWriter]: only one transaction at a time can write (SQLite).
//   - [snapshots]: a read shows which transactions it sees (PostgreSQL).
//   - [openTx]: the store lists the open transactions periodically (MySQL, MariaDB, SQL Server, Oracle).
//   - [timeBound]: the store can't see the open transactions, because the user lacks the privilege or because several servers write.
//     A timeBound assumes that each transaction ends within a set time. It is a part of openTx, because the privilege may be revoked
//     while a relay runs.
//
// The methods `before` and `wrote` may be called concurrently. Only one read at a time calls the other methods.
type frontier interface {
	// start resets the frontier before lanes are read, because another server may have answered when the table was opened. The
	// last argument is the highest id that this server has assigned.
	start(server string, given int64)

	// before returns a token, which records the frontier's present state. The caller gets a token before it runs a statement. If the
	// statement's transaction has a number, the caller must pass this number and the token to the method `wrote` after the statement.
	before() token
	wrote(xid uint64, began token)

	// prepare queries the database before a read, if the read's [backend.FirstLine] is not enough to derive the promises.
	prepare(ctx context.Context) error

	// idle returns true if a read's [backend.FirstLine] shows that no row has appeared since the previous page. It is called only if
	// the read's token is current.
	idle(first backend.FirstLine) bool

	// guarantee sets the promises of a page, from the read's [backend.FirstLine] and rows.
	guarantee(ctx context.Context, first backend.FirstLine, began token, page *storage.Page) error

	// learn records an assigned id that the store has read outside a page, such as the last id.
	learn(id int64)

	// failed records that a read has failed. Another server may answer the next read.
	failed()

	// reset discards the data from which the promises were derived. Later promises are derived only from later reads and lists. See
	// FoundLate in [storage.LaneStore].
	reset()
}

// openFrontier chooses the implementation for the database. Its second argument is the highest id that was assigned. The last
// argument is the field Unordered of the [dialect.Fit].
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
		return fmt.Errorf("the backend of %s has no Capabilities.Frontier", s.dialect.Name())
	}
	return nil
}

// token records the frontier's state at the beginning of a statement.
type token struct {
	given   int64 // the highest id that was known to be assigned
	run     int   // the frontier's count of resets; the token is invalid after another reset
	current bool  // true if a [backend.FirstLine] alone shows whether a row has appeared; see [snapshots.before]
}

// oneWriter is the frontier of databases in which only one transaction at a time can write. Rows are committed in the order of their
// ids, so no row appears at or below the last id.
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

// snapshots is the frontier of PostgreSQL, where a read shows which transactions it sees. A writer gets its transaction's number (xid)
// before an id, because the table declares writer_xid before id. Suppose that the store knows that the id m has been assigned, and
// that one of its transactions then requests a number and gets X. Then every transaction with a number above X gets only ids above m.
// Call the pair (X, m) a checkpoint. The floor of a transaction with the number w is the highest m of all checkpoints whose X is below w:
//
//	floor(w) = max { m : (X, m) is a checkpoint and X < w }
//
// All ids that this transaction has written or will write are above its floor.
//
// For a read with the snapshot S after a read with the snapshot P:
//
//   - No row can appear at or below floor(xmin(S)) any more, because every transaction that may still commit has a number of at
//     least xmin(S).
//   - If S shows a row that P didn't show, the row's transaction had ended when S was taken, and either was open in P or has a number of at
//     least xmax(P). Even a transaction with a number of at least xmax(P) may already have been running when P was taken, because xmax is
//     one more than the highest number of a transaction that had *ended*. No row appeared at or below the lowest floor of all these
//     transactions.
//
// Snapshots don't contain numbers of subtransactions. The rows of a subtransaction become visible together with the rows of its top
// transaction. Because of writer_xid, the top transaction gets its number before the subtransaction.
//
// If a relay leased a lane between P and S, it reads the lane from the mark, with S or a later snapshot, and so reads the rows that
// appeared there before S. Rows that appear after S are reported only once, by the LateAfter of the next read. So the caller must apply
// LateAfter to all its lanes, including those that this next read doesn't cover.
type snapshots struct {
	mu          sync.Mutex
	previous    *snapshot // the snapshot of the last successful read
	server      string    // the epoch of the server that answered last
	run         int       // counts resets
	given       int64     // the highest id that is known to have been assigned
	checkpoints checkpoints
}

func (h *snapshots) start(server string, given int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.server, h.given = server, given
}

// before returns a token. The token is current if the last checkpoint has the highest id that the frontier knows. If it isn't current,
// the next read must run in a transaction with a number, so that the safe id rises even while nothing is settled.
func (h *snapshots) before() token {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.checkpoints)
	return token{h.given, h.run, n > 0 && h.checkpoints[n-1].id >= h.given}
}

// wrote adds a checkpoint of the transaction's number and the token's id. The checkpoint is valid because the transaction requested its
// number after [snapshots.before] had returned the token.
func (h *snapshots) wrote(xid uint64, began token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if began.run == h.run {
		h.checkpoints.add(xid, began.given)
	}
}

// idle compares LateAfter with LastID. If a row has appeared since the previous page, its id is above LateAfter and at most LastID. So no
// row has appeared if LateAfter is at least LastID.
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

// guarantee derives the promises from the read's snapshot, and keeps the snapshot. If another server or a restored server has answered,
// its transaction numbers can't be compared with the earlier numbers. Then guarantee discards the checkpoints, and sets both promises of
// this page to 0.
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

// serverChanged reports whether the answer comes from a different server than the previous answer, or from a server that was restored.
func (h *snapshots) serverChanged(server string, s snapshot, given int64) bool {
	return h.server != "" && (server != h.server || given < h.given) || h.previous != nil && s.xmax < h.previous.xmax
}

// lateAfter returns an id below all rows that appeared between the previous snapshot and this one, or -1 if no row appeared.
func (h *snapshots) lateAfter(s snapshot) int64 {
	if h.previous == nil {
		return -1
	}
	lowest, ended := h.previous.xmax, s.endedFrom(h.previous.xmax)
	if i := slices.IndexFunc(h.previous.open, s.sees); i >= 0 { // floors ascend, so the first of these transactions has the lowest floor
		lowest, ended = h.previous.open[i], true
	}
	if !ended {
		return -1
	}
	late, _ := h.checkpoints.floor(lowest)
	return late
}

// reset discards the checkpoints and keeps the previous snapshot. So if rows have appeared since that snapshot, the LateAfter of the next
// page is 0. Without the snapshot, the page wouldn't report these rows, and only the relay's search for missed rows would find them.
func (h *snapshots) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given, h.checkpoints = 0, nil
	h.run++
}

// These methods do nothing. No query is needed before a read, because each read returns PostgreSQL's snapshot. Ids that were read
// outside pages, and failed reads, don't change this frontier's state.
func (h *snapshots) prepare(context.Context) error { return nil }
func (h *snapshots) learn(int64)                   {}
func (h *snapshots) failed()                       {}

// snapshot is the result of PostgreSQL's pg_current_snapshot: the transactions
// whose changes a statement saw.
type snapshot struct {
	xmin uint64   // all transactions with lower numbers had ended
	xmax uint64   // one more than the highest number that had ended; the statement saw no changes of transactions from this number on
	open []uint64 // the transactions from xmin to xmax-1 that had not ended, ascending
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

// sees reports whether the transaction had ended when the snapshot was taken.
func (s snapshot) sees(xid uint64) bool {
	if xid < s.xmin || xid >= s.xmax {
		return xid < s.xmin
	}
	_, open := slices.BinarySearch(s.open, xid)
	return !open
}

// endedFrom reports whether any transaction with this number or a higher one had ended.
func (s snapshot) endedFrom(xid uint64) bool {
	if xid >= s.xmax {
		return false
	}
	at, _ := slices.BinarySearch(s.open, xid)
	return uint64(len(s.open)-at) < s.xmax-max(xid, s.xmin) || xid < s.xmin
}

// checkpoint states that transactions with higher numbers than xid have only ids above id.
type checkpoint struct {
	xid uint64
	id  int64
}

// checkpoints are sorted by xid, and therefore also by id. Dropping a checkpoint is safe: floors are then lower, and relays read more rows
// a second time.
type checkpoints []checkpoint

// maxCheckpoints is the maximum length of the list.
const maxCheckpoints = 512

// floor returns the id of the last checkpoint with a lower number than xid, and how many checkpoints have a lower number. The id is
// below every id that a transaction with the number xid or a higher number has written or will write. If no checkpoint has a lower
// number, the id is 0.
func (c checkpoints) floor(xid uint64) (id int64, lower int) {
	lower, _ = slices.BinarySearchFunc(c, xid, func(c checkpoint, xid uint64) int { return cmp.Compare(c.xid, xid) })
	if lower > 0 {
		id = c[lower-1].id
	}
	return id, lower
}

func (c *checkpoints) add(xid uint64, id int64) {
	floor, at := c.floor(xid)
	if at > 0 && floor >= id {
		return // a checkpoint with a lower number already has this id or a higher one
	}
	end := at
	for end < len(*c) && (*c)[end].id <= id {
		end++ // the new checkpoint replaces this one, which has at least the new number and at most the new id
	}
	list := slices.Replace(*c, at, end, checkpoint{xid, id})
	if len(list) > maxCheckpoints { // drop every other checkpoint of the older half
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

// pass returns the floor of the number `lowest`. All transactions with lower numbers must have ended. So no later call needs the
// checkpoints before the one with the returned id, and pass drops them.
func (c *checkpoints) pass(lowest uint64) (floor int64) {
	floor, at := c.floor(lowest)
	if at > 1 {
		*c = slices.Delete(*c, 0, at-1)
	}
	return floor
}
