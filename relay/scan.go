package relay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// A scan looks for rows that appeared late: below what was read, as their
// transaction took longer than others. It walks over what is pending between the
// place where they may have appeared and the lane's cursor, and takes what the
// engine neither has in memory nor will come back to. What it returns is complete:
// nothing else belongs before any of it.
//
// There may be millions of rows to walk over, of a sink that is down. So it goes in
// steps, each of which has its own time, and keeps how far it has come when one
// fails.

// lateScan decides which rows of a scan the engine wants. It holds copies, as it
// runs in the reader; what it approves of is judged again when it is merged.
type lateScan struct {
	routes        *router
	known         map[int64]struct{}
	skippedFrom   map[int][]int64 // by lane and queue
	resumeFrom    map[keyRef]int64
	forgottenFrom map[int][]int64 // by lane and queue, as its lane has it
	topics        [][]string      // by queue: those that are known to be its own

	stride stride // of a step

	leftRows, leftBytes int             // so much more may come into memory
	skipped             map[place]int64 // the first row of each place that may not

	brought []Position // what came with the page, and has to be looked for if it is dropped
	epoch   string
}

// place is what has a lag of its own.
type place struct{ lane, queue int }

// unknown makes the scan of these positions, which may begin anew further below,
// but above the horizon.
func (e *byLanes) unknown(positions []Position, horizon int64) *lateScan {
	s := &lateScan{
		routes: e.routes, known: map[int64]struct{}{}, skippedFrom: map[int][]int64{}, resumeFrom: map[keyRef]int64{}, forgottenFrom: map[int][]int64{}, topics: e.routes.topics(len(e.queues), e.unrouted),
		stride: e.read.scanStride, leftRows: readLimit, leftBytes: readBytes, skipped: map[place]int64{},
	}
	for _, p := range positions {
		l := e.lanes[p.Lane]
		for id, it := range l.known {
			if id > min(p.After, horizon) && it.numbering == e.read.numbering {
				s.known[id] = struct{}{}
			}
		}
		s.skippedFrom[p.Lane], s.forgottenFrom[p.Lane] = slices.Clone(l.skippedFrom), slices.Clone(l.forgottenFrom)
		for ref, k := range l.keys {
			if k.dropped {
				s.resumeFrom[ref] = k.resumeFrom
			}
		}
	}
	return s
}

// expected says that the engine has the row in memory, or will come back to it.
func (s *lateScan) expected(c Candidate, queue int) bool {
	if _, ok := s.known[c.ID]; ok {
		return true
	}
	if lag := s.skippedFrom[c.Lane][queue]; lag != none && c.ID > lag {
		return true
	}
	behind, lagging := s.resumeFrom[keyRef{queue, c.Key}]
	return lagging && c.ID > behind
}

// follows says that the row may be one that was dropped as its key waits, where the
// lane doesn't know all the keys that do.
func (s *lateScan) follows(c Candidate, queue int) bool {
	left := s.forgottenFrom[c.Lane][queue]
	return c.Key != "" && left != none && c.ID > left
}

// keep approves of a row. A transaction that was open for long may bring more
// rows than there is memory: the queues of the rest fall behind.
func (s *lateScan) keep(c Candidate) bool {
	p := place{c.Lane, s.routes.find(c.Topic)}
	if s.expected(c, p.queue) {
		return false
	}
	first, full := s.skipped[p]
	if !full && s.leftRows > 0 && s.leftBytes > 0 {
		s.leftRows--
		s.leftBytes -= c.Bytes
		s.known[c.ID] = struct{}{} // it may be met again
		return true
	}
	if !full || c.ID < first {
		s.skipped[p] = c.ID
	}
	return false
}

// except returns the topics of which every row at the positions is one that its
// queue will come back to: those of a sink that is down, mostly.
func (s *lateScan) except(positions []Position) (topics []string) {
	for queue, own := range s.topics {
		comesBack := func(p Position) bool { lag := s.skippedFrom[p.Lane][queue]; return lag != none && lag <= p.After }
		if len(own) > 0 && !slices.ContainsFunc(positions, func(p Position) bool { return !comesBack(p) }) {
			topics = append(topics, own...)
		}
	}
	return topics
}

// scanLate carries a scan out. A transaction that commits between the page that
// told of late rows and the scan may have rows below where the scan began and
// above: it begins anew then, until it has all that belongs before what it has
// found. What it was told of commits meanwhile is owed to the next page.
//
// left are the positions that it has not walked, if it fails; of what it had found
// nothing is kept.
func (e *byLanes) scanLate(ctx context.Context, job readJob) (page Page, left []Position, err error) {
	page.LateAfter = none
	for round := job.positions; len(round) > 0; {
		found, steps := len(page.Rows), 0
		for left = round; len(left) > 0; steps++ {
			rows, rest, err := e.step(ctx, job.scan, left)
			if err != nil {
				return page, unwalked(job.positions, left, page.Rows), err
			}
			page.Rows, left = append(page.Rows, rows...), rest
		}
		if len(page.Rows) == found {
			break // and so nothing that could be ahead of anything
		}
		since, err := e.appearedSince(ctx, job.scan.epoch)
		if err != nil {
			return page, unwalked(job.positions, nil, page.Rows), err
		}
		page.LateAfter = lowestSet(page.LateAfter, since)
		round = split(round, since, steps > 1)
	}
	slices.SortFunc(page.Rows, func(a, b Row) int { return cmp.Compare(a.ID, b.ID) })
	return page, nil, nil
}

// step walks on, over a stretch of ids. Each step has its own time.
func (e *byLanes) step(ctx context.Context, scan *lateScan, positions []Position) (rows []Row, left []Position, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	began, stretch := time.Now(), lowestOf(positions, int64(scan.stride))
	rows, left, err = e.store.Scan(ctx, stretch, scan.except(stretch), scan.keep)
	e.reached(err)
	if err != nil {
		return nil, positions, err
	}
	scan.stride.learn(time.Since(began))
	return rows, restOf(positions, stretch, left), nil
}

// lowestOf returns the parts of positions with the lowest ids, so many of them, in the
// order of lanes.
func lowestOf(positions []Position, ids int64) (lowest []Position) {
	until := slices.MinFunc(positions, func(a, b Position) int { return cmp.Compare(a.After, b.After) }).After
	if until += ids; until < 0 {
		until = math.MaxInt64
	}
	for _, p := range positions {
		if p.Until = min(p.Until, until); p.After < p.Until {
			lowest = append(lowest, p)
		}
	}
	slices.SortFunc(lowest, func(a, b Position) int { return a.Lane - b.Lane })
	return lowest
}

// restOf returns what has to be walked of positions once parts of them were walked,
// but for what is left of those.
func restOf(positions, walked, left []Position) (rest []Position) {
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
func (e *byLanes) appearedSince(ctx context.Context, epoch string) (lateAfter int64, err error) {
	page, err := e.emptyPage(ctx)
	if err == nil && page.Epoch != epoch {
		return none, fmt.Errorf("another server (%s) answers than before (%s)", page.Epoch, epoch)
	}
	return page.LateAfter, err
}

// emptyPage asks what a page tells beside its rows.
func (e *byLanes) emptyPage(ctx context.Context) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	page, err := e.store.Read(ctx, nil, 0, 0)
	e.reached(err)
	return page, err
}

// unwalked returns what has to be walked again after a scan that failed: what it
// had not come to, and in lanes where it had found something all from there on.
func unwalked(positions, left []Position, found []Row) (again []Position) {
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

// split returns the positions of a scan in which it may have met some rows of a
// transaction and not others, where rows above an id have appeared since: those
// that it began above; and all that it went through in several steps.
func split(positions []Position, appearedAfter int64, steps bool) (again []Position) {
	for _, p := range positions {
		if appearedAfter != none && (appearedAfter < p.After || steps && appearedAfter < p.Until) {
			p.After = appearedAfter
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

// learn lets the next read go further if this one was quick, and less far if it took
// so long that others waited for it.
func (s *stride) learn(took time.Duration) {
	switch {
	case took < 20*time.Millisecond:
		*s = min(2**s, 1<<40)
	case took > 100*time.Millisecond:
		*s = max(*s/2, minStride)
	}
}

// failed makes the next read much shorter: this one took too long.
func (s *stride) failed() { *s = max(*s/8, minStride) }

// Much may wait for a sink that is down. To read page after page of it, only to pass
// it over, would hold up the others for minutes. So once a page was passed over for
// the most part, and much is still to be read, what is new is looked for by a scan
// that leaves those rows out, as one for late rows does: a stretch of ids after the
// other. Their sinks fall behind at the beginning of each stretch, and come back.

// farBehind is how many ids are worth a scan: fewer are read as fast. A scan's first
// stretch is eight times as long.
const farBehind = 4 * readLimit

// pollBeyond looks for what is new in the next stretch.
func (e *byLanes) pollBeyond(room int) (readJob, bool) {
	if !e.read.skipping {
		return readJob{}, false
	}
	var except []*sinkQueue // whose rows are left out: they lag, and have no use for more
	for _, q := range e.queues {
		if (q.circuit.state != circuitClosed || !q.roomy()) && e.skippedAny(q) {
			except = append(except, q)
		}
	}
	var positions []Position
	for _, l := range e.sortedLanes() {
		if !l.readable() {
			continue
		}
		for _, q := range except {
			l.skip(q.index, l.cursor+1)
		}
		positions = append(positions, Position{Lane: l.Lane, After: l.cursor})
	}
	if len(except) == 0 || len(positions) == 0 {
		return readJob{}, false
	}
	scan := e.unknown(positions, e.read.horizon)
	scan.leftRows = min(room, readLimit)
	return readJob{kind: readBeyond, positions: positions, scan: scan}, true
}

// readBeyond carries the scan out, in the reader, up to the last id that was given
// out, and asks then what a page tells beside its rows. Where that id isn't far, pages
// will do.
func (e *byLanes) readBeyond(ctx context.Context, job readJob) (result readResult) {
	short, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	last, err := e.store.LastID(short)
	e.reached(err)
	near := slices.MinFunc(job.positions, func(a, b Position) int { return cmp.Compare(a.After, b.After) }).After > last-e.read.farBehind
	job.positions = slices.DeleteFunc(job.positions, func(p Position) bool { return near || p.After >= last })
	for i := range job.positions {
		job.positions[i].Until = last
	}
	var rows []Row
	if err == nil && !near {
		rows, result.left, err = e.step(ctx, job.scan, job.positions)
	}
	if err == nil {
		result.page, err = e.emptyPage(ctx)
	}
	result.page.Rows, result.job, result.err = rows, job, err
	return result
}

// mergeBeyond moves the lanes to where the scan has come, or to what it had to leave
// as there was too much. What has appeared there meanwhile is looked for after the
// next page.
func (e *byLanes) mergeBeyond(result readResult) {
	e.read.scanStride = result.job.scan.stride
	e.read.skipping = len(result.job.positions) > 0 && len(result.job.scan.skipped) == 0
	for i := range result.page.Rows {
		row := &result.page.Rows[i]
		if l := e.readLane(result.job, row.Lane); l != nil && !l.draining {
			e.admit(l, row)
		}
	}
	e.poll.count(len(result.page.Rows) == 0)
	e.poll.fresh = true
	through := map[int]int64{}
	for _, p := range result.job.positions {
		through[p.Lane] = p.Until
	}
	for _, p := range result.left {
		through[p.Lane] = p.After
	}
	for p, first := range result.job.scan.skipped {
		through[p.lane] = min(through[p.lane], first-1)
	}
	for _, p := range result.job.positions {
		l := e.readLane(result.job, p.Lane)
		if l == nil || l.draining {
			continue
		}
		l.cursor = max(l.cursor, through[p.Lane])
		if late := result.page.LateAfter; late >= 0 {
			e.read.pendingLate = lowestSet(e.read.pendingLate, max(late, p.After))
		}
	}
}
