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

// What appears below what was read. Ids are given out before commits, so a transaction that
// takes longer than others brings rows below the cursor. A page comes in that tells from where,
// and lateRows says which lanes have to be scanned before the page is merged. The scan, in the
// reader, walks over what is pending between that place and the lane's cursor, and takes what
// the engine neither has in memory nor will come back to. What must hold: what it returns is
// complete, so that nothing else belongs before any of it; and what it was told meanwhile is
// kept for the next page.
//
// There may be millions of rows to walk over, of a sink that is down. So it goes in steps, each
// of which has its own time, and keeps how far it has come when one fails.

// lateRows is what is known of ids: which are final, and where rows appear late.
type lateRows struct {
	base    *base
	held    *heldLanes
	poll    *polling
	routes  *router
	queues  []*sinkQueue
	control *control // what is paused

	safeID    int64  // nothing can appear any more at or below it
	lastID    int64  // no higher id was given out when the last page was read
	span      int64  // how far back, in ids, most late rows appear
	lateAfter int64  // rows may have appeared above this, of which no merged page has told; or none
	scans     bool   // late rows were looked for before the last page was merged
	stride    stride // of a scan's step

	idGeneration int   // how often ids began anew: a row that was read before may have the id of a new one
	highest      int64 // the highest id from before that
}

// scanFirst returns the scan for late rows that must be over before the page is merged; nil
// if there is no need for one.
func (r *lateRows) scanFirst(f *fetch) *lateScan {
	lateAfter := lowestSet(f.page.LateAfter, r.lateAfter)
	f.page.LateAfter = lowestSet(lateAfter, r.detectSequenceReset(f))
	r.lateAfter = f.page.LateAfter // until the page is merged, no mark passes it
	// Most late rows appear only a few ids back. Later pages begin that much lower (span), and so bring such rows
	// without a scan. Rows that appear far back are the exception, and don't count for span.
	if lateAfter >= 0 {
		lag := int64(0) // what has appeared lies above LateAfter, up to LastID: nothing, if that is the same
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
			until = min(until, r.lastID) // rows above are from before ids began anew
		}
		if l.draining { // whoever holds it next looks for it
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

// detectSequenceReset takes note of which ids the page's server has given out, and has lanes read
// from their beginning where ids began anew. It returns the id above which what is new counts
// as late, if there is one: else none.
//
// Where ids began anew, what comes next has lower ids than what was read. This concerns a lane
// that was leased with a mark above LastID, and every lane once LastID has fallen. Old rows have
// higher ids, and are read again, too. They leave the cursor above LastID, so new rows count as
// late.
func (r *lateRows) detectSequenceReset(f *fetch) (lateAfter int64) {
	before, lastID := r.lastID, f.page.LastID
	r.lastID, r.safeID = lastID, min(r.safeID, f.page.SafeID) // lower than before where ids began anew; else it holds once the page is merged
	anew, above := 0, false
	for _, l := range r.held.sortedLanes() {
		if r.held.laneOf(f.seq, l.Lane) == nil {
			continue
		}
		head := l.readers.head()
		if head > 0 && (lastID < before || !l.placed && head > lastID) {
			r.highest = max(r.highest, head, before)
			l.readers.rewind(0)
			head, l.floor, l.unswept = 0, 0, false
			l.seq = f.seq // this page isn't from there
			r.held.rewound = true
			anew++
		}
		above = above || l.placed && head > before
		l.placed = true
	}
	if anew > 0 {
		r.span = 0
		r.idGeneration++
		r.base.options.Logger.Warn("relay: ids began anew, lanes are read from their beginning", "relay", r.base.options.Name, "lanes", anew, "last id", lastID)
	}
	if above && lastID > before {
		return before
	}
	return none
}

// brings reports whether the page has brought everything that appeared late in a lane above an id. It has no rows of sinks that are
// apart; these must be below that id, so that they read them later.
func (f *fetch) brings(l *lane, after int64) bool {
	for i := range l.readers {
		if f.reads != nil && !f.reads(i) && l.readers[i].cursor > after {
			return false
		}
	}
	return f.kind == readLanes && !f.page.More && !l.draining &&
		slices.ContainsFunc(f.positions, func(p storage.Position) bool { return p.Lane == l.Lane && p.After <= after })
}

// againBytes bounds what a read reads once more, about.
const againBytes = 64 << 10

// mergeLate takes in the rows that appeared late, before the page that had to wait for them.
func (e *byLanes) mergeLate(f *fetch) {
	e.late.stride = f.late.stride
	for p, id := range f.late.skipped { // first: a row above what has to be left must wait, too
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

// lateScan is a scan: its positions, what it needs to decide which rows the engine wants, and what it has found. It
// runs in the reader, beside the loop. So it has copies of the loop's state, and shares only what any goroutine may
// use: the routes (by find), the pauses, and the sets of paused keys, to which it adds and which have a lock. The loop judges each row again when it
// merges the scan.
type lateScan struct {
	positions []storage.Position
	left      []storage.Position // what wasn't walked
	rows      []storage.Row
	stride    stride // of a step

	routes *router
	known  []map[int64]struct{} // by queue
	lanes  map[int]*scannedLane
	pauses *pauses
	own    [][]string // as router has it

	leftRows, leftBytes int                 // so much more may come into memory
	skipped             map[laneQueue]int64 // the first row, of each lane and queue, for which there is no room

	brought []storage.Position // late rows: what came with the page, and has to be looked for if it is dropped
	epoch   string             // of the page

	found map[int]int64 // by a sweep: the lowest row in each lane that nobody expects
	took  time.Duration
}

// scannedLane is what a scan knows of a lane.
type scannedLane struct {
	readers     []places
	keysUnknown bool
	passed      *keySet
}

// laneQueue is one queue's part of one lane: it falls behind as a whole.
type laneQueue struct{ lane, queue int }

// scan makes the scan of these positions. It may begin again further below, but never below the safe id: so it also gets
// the known rows from there on.
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
			l.passed = newKeySet() // to which the scan adds
		}
		scanned := &scannedLane{keysUnknown: l.keysUnknown, passed: l.passed}
		for i := range l.readers {
			scanned.readers = append(scanned.readers, l.readers[i].places())
		}
		s.lanes[p.Lane] = scanned
	}
	return s
}

// expected says that the engine has the row in memory for a queue, or will come back to it.
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
	if paused && c.Key != "" && s.pauses.topics[c.Topic] { // the lane may never have met this row: its key waits from now on
		l.passed.add(queue, c.Key)
	}
	return paused
}

// follows says that the row may follow a message of a blocked key that the lane has
// forgotten: then it was dropped on purpose.
func (s *lateScan) follows(c storage.Candidate, queue int) bool {
	l := s.lanes[c.Lane]
	return c.Key != "" && l.keysUnknown && l.readers[queue].mayLeaveOut(c.ID)
}

// keep approves of a row. A transaction that was open for long may bring more
// rows than there is memory: the queues of the rest fall behind.
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
			s.known[queue][c.ID] = struct{}{} // it may be met again
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

// unexpected returns the queues that need the row and would miss it: they neither have it in memory nor will come back
// to it.
func (s *lateScan) unexpected(c storage.Candidate) []int {
	var needed []int
	if c.Sinks != "" {
		needed = s.routes.named(c.Sinks)
	} else {
		needed = slices.Clone(s.routes.find(c.Topic).sinks)
	}
	return slices.DeleteFunc(needed, func(queue int) bool { return s.expected(c, queue) })
}

// except returns the topics that a scan may leave out: those of queues that will come back to every one of their rows at
// these positions. Mostly these are the topics of a sink that is down.
func (s *lateScan) except(positions []storage.Position) (topics []string) {
	for queue, own := range s.own {
		comesBack := func(p storage.Position) bool { return s.lanes[p.Lane].readers[queue].cursor <= p.After }
		if len(own) > 0 && !slices.ContainsFunc(positions, func(p storage.Position) bool { return !comesBack(p) }) {
			topics = append(topics, own...)
		}
	}
	return topics
}

// scanLate carries out a scan for late rows. A transaction may commit between the page and the scan, with rows both below
// and above where the scan began. So after each round that found rows it asks what has appeared since, and scans again
// from there, until it has everything that belongs before what it has found. It returns the lowest id that it was told,
// for the next page. If it fails, what it had found doesn't count, and s.left is what must be walked again.
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
			break // this round found nothing that a missed row could belong before
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

// scanStep walks on, over a stretch of ids. Each step has its own time.
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

// lowestOf returns the parts of positions that lie within so many ids above the lowest After, in the order of lanes.
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

// restOf returns what must still be walked of positions. The parts in walked were given to the store, which has come
// through them but for left.
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

// appearedSince asks what has appeared since the last page.
func (b *base) appearedSince(ctx context.Context, epoch string) (lateAfter int64, err error) {
	page, err := b.emptyPage(ctx)
	if err == nil && page.Epoch != epoch {
		return none, fmt.Errorf("another server (%s) answers than before (%s)", page.Epoch, epoch)
	}
	return page.LateAfter, err
}

// emptyPage asks what a page tells beside its rows.
func (b *base) emptyPage(ctx context.Context) (storage.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, b.callTimeout)
	defer cancel()
	began := time.Now()
	page, err := b.store.Read(ctx, storage.ReadRequest{})
	b.reached("read", began, err)
	return page, err
}

// unwalked returns what has to be walked again after a scan that failed: what it
// had not come to, and in lanes where it had found something all from there on.
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

// toScanAgain returns the positions that must be scanned again, from lateAfter on. Rows above that id have appeared
// since: so the scan may have met some rows of a transaction and missed others. These are the positions that began above
// lateAfter; after a scan of several steps also all others that end above it.
func toScanAgain(positions []storage.Position, lateAfter int64, steps bool) (again []storage.Position) {
	for _, p := range positions {
		if lateAfter != none && (lateAfter < p.After || steps && lateAfter < p.Until) {
			p.After = lateAfter
			again = append(again, p)
		}
	}
	return again
}

// leastStride is how many ids a read that catches up with keys goes on at least.
const leastStride = 1 << 16

// stride is how many ids a read goes on that may pass over many rows, or over entries
// of rows that are gone.
type stride int64

const minStride = 1000

// slowStride is how long a read may take before the next one covers fewer ids: others wait for it.
const slowStride = 100 * time.Millisecond

// learn lets the next read go further if this one was quick, and less far if it took
// so long that others waited for it.
func (s *stride) learn(took time.Duration) {
	switch {
	case took < 20*time.Millisecond:
		*s = min(2**s, 1<<40)
	case took > slowStride:
		*s = max(*s/2, minStride)
	}
}

// failed makes the next read much shorter: this one took too long.
func (s *stride) failed() { *s = max(*s/8, minStride) }
