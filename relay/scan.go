package relay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Late rows appear below the cursors. Ids are assigned before commits, so a transaction that takes longer than others commits
// rows with lower ids than rows that were already read. Each page reports the id above which late rows may have appeared, and
// lateRows decides which lanes must be scanned before the page is merged. A scan runs in the reader goroutine. It walks over
// the pending rows from the reported id up to the lane's cursor, and returns the rows that are not in memory and that no later
// read would return. What must hold: a scan that returns a row also returns every late row that must be delivered before it.
// If further late rows are reported during the scan, the report is kept for the next page.
//
// A scan may have to walk over millions of rows of a sink that is down. So it proceeds in steps, each with its own time-out.
// If a step fails, the next scan needn't repeat all earlier steps.

// lateRows records the id at or below which no row can appear, and the id above which late rows may have appeared.
type lateRows struct {
	base    *base
	held    *heldLanes
	poll    *polling
	routes  *router
	queues  []*sinkQueue
	control *control // has the pauses in force

	safeID    int64  // no row can appear at or below this id any more
	lastID    int64  // the highest id that was assigned when the last page was read
	span      int64  // most late rows have ids within this distance below the highest id that was read
	lateAfter int64  // above this id, rows may have appeared that no page has returned and no scan has searched for; `none` if no such rows can exist
	scans     bool   // a scan ran before the last page was merged
	stride    stride // how many ids a step of a scan covers

	idGeneration int   // counts resets of the id sequence, after which a new row may have the id of an older one
	highest      int64 // the highest id that was read before any reset
}

// scanFirst returns the scan for late rows that must end before the page is merged. It returns nil if no scan is needed.
func (r *lateRows) scanFirst(f *fetch) *lateScan {
	lateAfter := lowestSet(f.page.LateAfter, r.lateAfter)
	f.page.LateAfter = lowestSet(lateAfter, r.detectSequenceReset(f))
	r.lateAfter = f.page.LateAfter // until the page is merged, no mark rises above this id
	// Most late rows appear only a few ids below the highest id that was read in any lane. The next pages begin r.span ids below
	// that id, or at a lane's own cursor if that is lower. So they return such rows without a scan. Rows that appear far below the
	// highest id are rare, and don't change the span.
	if lateAfter >= 0 {
		lag := int64(0) // late rows have ids above LateAfter, up to LastID; if the two are equal, no late rows exist
		if lateAfter < f.page.LastID {
			lag = r.held.furthest() - lateAfter
		}
		switch {
		case lag > againBytes/int64(max(r.poll.rowBytes, 256)):
		case lag > r.span:
			r.span = lag
		default:
			r.span -= (r.span - lag) / 8
		}
	}
	var positions, brought []storage.Position
	for _, l := range r.held.sortedLanes() {
		after := max(f.page.LateAfter, l.floor)
		if f.page.LateAfter < 0 || after >= l.readers.head() || r.held.laneOf(f.seq, l.Lane) == nil {
			continue
		}
		if f.brings(l, after) {
			brought = append(brought, storage.Position{Lane: l.Lane, After: after})
			continue
		}
		until := l.readers.head()
		if lateAfter == none || lateAfter >= until {
			until = min(until, r.lastID) // rows above lastID were written before the id sequence was reset
		}
		if l.draining { // the lane's next holder will read the late rows
			l.readers.rewind(after)
			continue
		}
		positions = append(positions, storage.Position{Lane: l.Lane, After: after, Until: until})
	}
	if r.scans = len(positions) > 0; !r.scans {
		return nil
	}
	scan := r.scan(positions)
	scan.brought, scan.epoch = brought, f.page.Epoch
	return scan
}

// detectSequenceReset detects that the id sequence was reset, and rewinds the lanes to their beginning. It returns the id above
// which new rows count as late. If no new row counts as late, it returns `none`.
//
// After a reset, new rows have lower ids than rows that were read. If LastID has fallen, every lane is rewound. Otherwise only
// the lanes that were leased with marks above LastID are rewound. The old rows, which have higher ids, are read again, too,
// and raise the cursors above LastID. So from then on new rows count as late.
func (r *lateRows) detectSequenceReset(f *fetch) (lateAfter int64) {
	before, lastID := r.lastID, f.page.LastID
	r.lastID, r.safeID = lastID, min(r.safeID, f.page.SafeID) // safeID rises only when the page is merged
	reset, above := 0, false
	for _, l := range r.held.sortedLanes() {
		if r.held.laneOf(f.seq, l.Lane) == nil {
			continue
		}
		head := l.readers.head()
		if head > 0 && (lastID < before || !l.placed && head > lastID) {
			r.highest = max(r.highest, head, before)
			l.readers.rewind(0)
			head, l.floor, l.unswept = 0, 0, false
			l.seq = f.seq // ignore this page, which began above the new position
			r.held.rewound = true
			reset++
		}
		above = above || l.placed && head > before
		l.placed = true
	}
	if reset > 0 {
		r.span = 0
		r.idGeneration++
		r.base.options.Logger.Warn("relay: id sequence was reset; rereading lanes from the start", "relay", r.base.options.Name, "lanes", reset, "last_id", lastID)
	}
	if above && lastID > before {
		return before
	}
	return none
}

// brings reports whether the page has all late rows of a lane above this id, except rows that will be read later. A page lacks the
// rows of sinks that are set apart. Such a sink reads them later if its cursor is at or below the id.
func (f *fetch) brings(l *lane, after int64) bool {
	for i := range l.readers {
		if f.reads != nil && !f.reads(i) && l.readers[i].cursor > after {
			return false
		}
	}
	return f.kind == readLanes && !f.page.More && !l.draining &&
		slices.ContainsFunc(f.positions, func(p storage.Position) bool { return p.Lane == l.Lane && p.After <= after })
}

// againBytes is approximately how many bytes of rows a page may read again to find late rows.
const againBytes = 64 << 10

// mergeLate merges the late rows that a scan has found. The page that waited for the scan is merged afterwards.
func (e *byLanes) mergeLate(f *fetch) {
	e.late.stride = f.late.stride
	for p, id := range f.late.skipped { // first, so that rows above a skipped row wait, too
		if l := e.held.laneOf(f.seq, p.lane); l != nil {
			l.readers[p.queue].rewind(id - 1)
			e.held.rewound = true
		}
	}
	for i := range f.late.rows {
		row := &f.late.rows[i]
		if l := e.held.laneOf(f.seq, row.Lane); l != nil {
			e.admit(l, row)
		}
	}
}

// lateScan is a scan for late rows: the positions to scan, the state that decides which rows the engine needs, and the
// results. A scan runs in the reader goroutine, concurrently with the loop. So it has copies of the loop's state. It shares
// only values that are safe for concurrent use: the routes (find), the pauses, and the lanes' sets of keys, to which it adds
// keys. The loop decides about each returned row again when it merges the scan.
type lateScan struct {
	positions []storage.Position
	left      []storage.Position // the ranges of ids that the scan has not walked over
	rows      []storage.Row
	stride    stride // how many ids a step covers

	routes *router
	known  []map[int64]struct{} // the ids of the rows in memory, by queue
	lanes  map[int]*scannedLane
	pauses *pauses
	own    [][]string // a copy of router.ownTopics

	leftRows, leftBytes int                 // how many more rows and bytes the scan may return
	skipped             map[laneQueue]int64 // by lane and queue: the lowest id of a row for which there is no room

	brought []storage.Position // positions whose late rows the page already has; they must be scanned if the page is dropped
	epoch   string             // the page's epoch

	found map[int]int64 // for a sweep: the lowest missed id in each lane
	took  time.Duration
}

// scannedLane is a scan's copy of a lane's state, except that the scan shares the set `passed` with the loop.
type scannedLane struct {
	readers     []places
	keysUnknown bool
	passed      *keySet
}

// laneQueue identifies a reader: one queue's part of one lane.
type laneQueue struct{ lane, queue int }

// scan returns a new lateScan of these positions. A scan may start again at a lower id, but never below the safe id. So it gets the
// ids of the rows in memory that are above the lower of its position and the safe id.
func (r *lateRows) scan(positions []storage.Position) *lateScan {
	s := &lateScan{
		positions: positions, left: positions, stride: r.stride,
		routes: r.routes, own: slices.Clone(r.routes.ownTopics), known: make([]map[int64]struct{}, len(r.queues)),
		lanes: map[int]*scannedLane{}, pauses: r.control.pauses,
		leftRows: readLimit, leftBytes: readBytes, skipped: map[laneQueue]int64{},
	}
	for i := range s.known {
		s.known[i] = map[int64]struct{}{}
	}
	for _, p := range positions {
		l := r.held.lanes[p.Lane]
		for it := range l.items() {
			if it.row.ID > min(p.After, r.safeID) && it.idGeneration == r.idGeneration {
				s.known[it.slot][it.row.ID] = struct{}{}
			}
		}
		if l.passed == nil && s.pauses != nil && len(s.pauses.topics) > 0 {
			l.passed = newKeySet() // the scan may add keys
		}
		scanned := &scannedLane{keysUnknown: l.keysUnknown, passed: l.passed}
		for i := range l.readers {
			scanned.readers = append(scanned.readers, l.readers[i].places())
		}
		s.lanes[p.Lane] = scanned
	}
	return s
}

// expected reports whether the engine has the row in memory for a queue, or will read it later.
func (s *lateScan) expected(c storage.Candidate, queue int) bool {
	if _, ok := s.known[queue][c.ID]; ok {
		return true
	}
	l := s.lanes[c.Lane]
	r := &l.readers[queue]
	if r.willMeet(c.ID, c.Key) {
		return true
	}
	paused := r.mayLeaveOut(c.ID) && s.pauses.cover(c.Topic, c.Key, queue, l.passed)
	if paused && c.Key != "" && s.pauses.topics[c.Topic] { // the loop may not have seen this row: record its key, so that later rows of the key wait
		l.passed.add(queue, c.Key)
	}
	return paused
}

// follows reports whether the row may have been dropped because its key was blocked. The lane may have forgotten such a key since
// then.
func (s *lateScan) follows(c storage.Candidate, queue int) bool {
	l := s.lanes[c.Lane]
	return c.Key != "" && l.keysUnknown && l.readers[queue].mayLeaveOut(c.ID)
}

// keep decides whether the scan returns a row. If a long transaction has committed more rows than a scan may return, keep rejects
// the rest, and records in s.skipped from which id the queues must read again.
func (s *lateScan) keep(c storage.Candidate) bool {
	wanted, full := s.unexpected(c), s.leftRows <= 0 || s.leftBytes <= 0
	if len(wanted) == 0 {
		return false
	}
	for _, queue := range wanted {
		_, fell := s.skipped[laneQueue{c.Lane, queue}]
		full = full || fell
	}
	if !full {
		s.leftRows--
		s.leftBytes -= c.Bytes
		for _, queue := range wanted {
			s.known[queue][c.ID] = struct{}{} // a later round may read this row again
		}
		return true
	}
	for _, queue := range wanted {
		p := laneQueue{c.Lane, queue}
		if first, fell := s.skipped[p]; !fell || c.ID < first {
			s.skipped[p] = c.ID
		}
	}
	return false
}

// unexpected returns the queues that need the row and would miss it, because they neither have it in memory nor will read it
// later.
func (s *lateScan) unexpected(c storage.Candidate) []int {
	var needed []int
	if c.Sinks != "" {
		needed = s.routes.named(c.Sinks)
	} else {
		needed = slices.Clone(s.routes.find(c.Topic).sinks)
	}
	return slices.DeleteFunc(needed, func(queue int) bool { return s.expected(c, queue) })
}

// except returns the topics that a scan may leave out: topics that only one queue needs, if that queue will read all its rows at
// these positions later. Usually these are the topics of a sink that is down.
func (s *lateScan) except(positions []storage.Position) (topics []string) {
	for queue, own := range s.own {
		comesBack := func(p storage.Position) bool { return s.lanes[p.Lane].readers[queue].cursor <= p.After }
		if len(own) > 0 && !slices.ContainsFunc(positions, func(p storage.Position) bool { return !comesBack(p) }) {
			topics = append(topics, own...)
		}
	}
	return topics
}

// scanLate carries out a scan for late rows. A transaction may commit between the page and the scan, with rows both below and
// above the beginning of the scan. So after each round that found rows, scanLate asks the store for the id above which rows have
// appeared in the meantime, and scans again from that id (see toScanAgain). It returns the lowest id that the store reported, for
// the next page. If scanLate fails, its rows are dropped, and s.left contains the ranges that must be scanned again.
func (b *base) scanLate(ctx context.Context, s *lateScan) (lateAfter int64, err error) {
	lateAfter = none
	for round := s.positions; len(round) > 0; {
		found, steps := len(s.rows), 0
		for s.left = round; len(s.left) > 0; steps++ {
			if err := b.scanStep(ctx, s); err != nil {
				s.left = unwalked(s.positions, s.left, s.rows)
				return lateAfter, err
			}
		}
		if len(s.rows) == found {
			break // this round found no further rows, so no row that must be delivered before a found row can be missing
		}
		newLateAfter, err := b.appearedSince(ctx, s.epoch)
		if err != nil {
			s.left = unwalked(s.positions, nil, s.rows)
			return lateAfter, err
		}
		lateAfter = lowestSet(lateAfter, newLateAfter)
		round = toScanAgain(round, newLateAfter, steps > 1)
	}
	slices.SortFunc(s.rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
	return lateAfter, nil
}

// scanStep scans the next range of ids, with a time-out of its own.
func (b *base) scanStep(ctx context.Context, s *lateScan) error {
	ctx, cancel := context.WithTimeout(ctx, b.callTimeout)
	defer cancel()
	began, stretch := time.Now(), lowestOf(s.left, int64(s.stride))
	rows, left, err := b.store.Scan(ctx, stretch, s.except(stretch), s.keep)
	b.reached("scan", began, err)
	if b.options.Tracer != nil {
		b.traceClaimed(began, rows)
	}
	if err == nil {
		s.stride.learn(time.Since(began))
		s.rows, s.left = append(s.rows, rows...), restOf(s.left, stretch, left)
	}
	return err
}

// lowestOf returns the parts of positions that lie within the given number of ids above the lowest After, ordered by lane.
func lowestOf(positions []storage.Position, ids int64) (lowest []storage.Position) {
	until := slices.MinFunc(positions, func(a, b storage.Position) int { return cmp.Compare(a.After, b.After) }).After
	if until += ids; until < 0 {
		until = math.MaxInt64
	}
	for _, p := range positions {
		if p.Until = min(p.Until, until); p.After < p.Until {
			lowest = append(lowest, p)
		}
	}
	slices.SortFunc(lowest, func(a, b storage.Position) int { return a.Lane - b.Lane })
	return lowest
}

// restOf returns the parts of positions that must still be walked over. The store has walked over the ranges in `walked`, except
// for the ranges in `left`.
func restOf(positions, walked, left []storage.Position) (rest []storage.Position) {
	after := map[int]int64{}
	for _, p := range walked {
		after[p.Lane] = p.Until
	}
	for _, p := range left {
		after[p.Lane] = min(p.After, after[p.Lane])
	}
	for _, p := range positions {
		if p.After = max(p.After, after[p.Lane]); p.After < p.Until {
			rest = append(rest, p)
		}
	}
	return rest
}

// appearedSince returns the id above which rows may have appeared since the last page. It returns `none` if no row can have
// appeared.
func (b *base) appearedSince(ctx context.Context, epoch string) (lateAfter int64, err error) {
	page, err := b.emptyPage(ctx)
	if err == nil && page.Epoch != epoch {
		return none, fmt.Errorf("the server has changed, from epoch %s to %s", epoch, page.Epoch)
	}
	return page.LateAfter, err
}

// emptyPage reads a page without rows, because only its other fields are needed.
func (b *base) emptyPage(ctx context.Context) (storage.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, b.callTimeout)
	defer cancel()
	began := time.Now()
	page, err := b.store.Read(ctx, storage.ReadRequest{})
	b.reached("read", began, err)
	return page, err
}

// unwalked returns the ranges that the next scan must cover after a failed one. These are the ranges that the failed scan did not
// reach. In a lane where it found rows, the range begins below the first of them, since the found rows are dropped.
func unwalked(positions, left []storage.Position, found []storage.Row) (again []storage.Position) {
	for _, p := range positions {
		after := p.Until
		for _, rest := range left {
			if rest.Lane == p.Lane {
				after = min(after, rest.After)
			}
		}
		for i := range found {
			if found[i].Lane == p.Lane {
				after = min(after, found[i].ID-1)
			}
		}
		if after < p.Until {
			p.After = after
			again = append(again, p)
		}
	}
	return again
}

// toScanAgain returns the positions that must be scanned again, each from lateAfter on. Rows may have appeared above that id
// during the scan, so the scan may have found some rows of a transaction without the others. Positions that begin above lateAfter
// must be scanned again. If the scan had several steps, positions that end above lateAfter must be scanned again, too.
func toScanAgain(positions []storage.Position, lateAfter int64, steps bool) (again []storage.Position) {
	for _, p := range positions {
		if lateAfter != none && (lateAfter < p.After || steps && lateAfter < p.Until) {
			p.After = lateAfter
			again = append(again, p)
		}
	}
	return again
}

// leastStride is the initial stride of scans and sweeps, and the minimum stride of reads for unblocked keys.
const leastStride = 1 << 16

// stride is how many ids one read covers if it may have to walk over many rows, or over index entries of deleted rows.
type stride int64

const minStride = 1000

// If a read takes longer than slowStride, the next one covers fewer ids, so that other reads don't wait long.
const slowStride = 100 * time.Millisecond

// learn makes the next read cover more ids if this one was quick, and fewer if it was slow.
func (s *stride) learn(took time.Duration) {
	switch {
	case took < 20*time.Millisecond:
		*s = min(2**s, 1<<40)
	case took > slowStride:
		*s = max(*s/2, minStride)
	}
}

// failed makes the next read cover an eighth of the ids, since this read probably took too long.
func (s *stride) failed() { *s = max(*s/8, minStride) }
