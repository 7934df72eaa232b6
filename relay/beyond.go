package relay

import (
	"cmp"
	"context"
	"slices"
)

// Much may wait for a sink that is down. To read page after page of it, only to pass
// it over, would hold up the others for minutes. So once a page was passed over for
// the most part, and much is still to be read, what is new is looked for by a scan
// that leaves those rows out, as one for late rows does: a stretch of ids after the
// other. Their sinks fall behind at the beginning of each stretch, and come back.

// farBehind is how many ids are worth a scan: fewer are read as fast. A scan's first
// stretch is eight times as long.
const farBehind = 4 * readLimit

// lookBeyond looks for what is new in the next stretch.
func (e *engine) lookBeyond(room int) (readJob, bool) {
	if !e.read.passing {
		return readJob{}, false
	}
	except := e.passedOver()
	var positions []Position
	for _, l := range e.sortedLanes() {
		if !l.readable() {
			continue
		}
		for _, o := range except {
			l.fall(o.index, l.cursor+1)
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

// passedOver returns the outlets whose rows are left out: they lag, and have no use
// for more.
func (e *engine) passedOver() (except []*outlet) {
	for _, o := range e.outlets {
		if (o.circuit.state != circuitUp || !o.roomy()) && e.lagging(o) {
			except = append(except, o)
		}
	}
	return except
}

// readBeyond carries the scan out, in the reader, up to the last id that was given
// out, and asks then what a page tells beside its rows. Where that id isn't far, pages
// will do.
func (e *engine) readBeyond(ctx context.Context, job readJob) (result readResult) {
	last, err := e.lastID(ctx)
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

func (e *engine) lastID(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	last, err := e.store.LastID(ctx)
	e.reached(err)
	return last, err
}

// mergeBeyond moves the lanes to where the scan has come, or to what it had to leave
// as there was too much. What has appeared there meanwhile is looked for after the
// next page.
func (e *engine) mergeBeyond(result readResult) {
	e.read.scanStride = result.job.scan.stride
	e.read.passing = len(result.job.positions) > 0 && len(result.job.scan.passed) == 0
	for i := range result.page.Rows {
		row := &result.page.Rows[i]
		if l := e.readLane(result.job, row.Lane); l != nil && !l.draining {
			e.admit(l, row)
		}
	}
	e.countLook(len(result.page.Rows) == 0)
	e.read.fresh = true
	through := map[int]int64{}
	for _, p := range result.job.positions {
		through[p.Lane] = p.Until
	}
	for _, p := range result.left {
		through[p.Lane] = p.After
	}
	for p, first := range result.job.scan.passed {
		through[p.lane] = min(through[p.lane], first-1)
	}
	for _, p := range result.job.positions {
		l := e.readLane(result.job, p.Lane)
		if l == nil || l.draining {
			continue
		}
		l.cursor = max(l.cursor, through[p.Lane])
		if late := result.page.LateAfter; late >= 0 {
			e.read.owed = lowestSet(e.read.owed, max(late, p.After))
		}
	}
}
