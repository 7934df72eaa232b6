package relay

import (
	"context"
	"maps"
	"slices"
	"time"
)

// rowsLane is the one lane of a relay that claims by rows: it stands for its
// token, and has no order.
const rowsLane = -1

// beginRows makes the lane of all claimed rows.
func (e *engine) beginRows() {
	l := newLane(Lease{Lane: rowsLane}, len(e.outlets), time.Now())
	l.token = e.options.Name + "/" + randomHex(8)
	e.lanes[rowsLane], e.sorted = l, nil
	e.read.except = map[string]*outlet{}
}

// claimRows claims as many rows as there is room for. While no sink is up it
// claims nothing: others may be able to deliver.
func (e *engine) claimRows(now time.Time) (readJob, bool) {
	maps.DeleteFunc(e.read.except, func(_ string, o *outlet) bool {
		again := o.roomy() && o.circuit.state == circuitUp
		e.read.fresh = e.read.fresh || again
		return again
	})
	count := e.worthClaiming()
	if count == 0 {
		return readJob{}, false
	}
	unprompted := e.read.polled
	e.beginLook(now)
	e.read.asked += count
	return readJob{kind: readRows, claim: ClaimRequest{
		Relay: e.options.Name, Token: e.lanes[rowsLane].token, TTL: e.options.Lease, Limit: count,
		Pick: e.options.Pick, Topics: e.options.Topics, Except: slices.Sorted(maps.Keys(e.read.except)),
		Unprompted: unprompted,
	}}, true
}

// mostReads is how many reads may be under way at once. To claim a row takes a
// database longer than all else that it does for it.
func (e *engine) mostReads() int {
	if e.options.Claim == ByRows {
		return e.store.AtOnce().Claims
	}
	return 1
}

// worthClaiming is how many rows are claimed now. Beside another claim it is none,
// unless there was plenty and all would find room.
func (e *engine) worthClaiming() int {
	room := 0
	if e.anyUp() {
		room = e.mostRoom()
	}
	limit := readLimit / e.mostReads()
	switch {
	case e.read.under == 0 && e.read.fresh:
		return min(room, limit)
	case e.read.under > 0 && e.read.plenty && room >= e.read.asked+limit:
		return limit
	default:
		return 0
	}
}

// mergeRows takes claimed rows into memory, and gives back those for which
// there is no room, with their topic left out of the next claims.
func (e *engine) mergeRows(job readJob, rows []Row) {
	l := e.lanes[rowsLane]
	late := time.Since(job.began) > e.options.Lease/2
	for i := range rows {
		row := &rows[i]
		if old := l.known[row.ID]; old != nil && old.row.Message.ID == row.Message.ID && (old.stage == inQueue || old.stage == inFlight) {
			continue // its claim had ended, and is ours again
		}
		o := e.outlets[e.routes.sink(row.Message.Topic)]
		switch {
		case row.Later:
			e.putAway(l, row)
		case late || e.stopping.begun:
			e.putBackClaim(l, row)
		case o.room() <= 0:
			e.giveBack(l, o, row)
		default:
			e.take(&item{row: *row, lane: l, outlet: o})
		}
	}
	e.read.plenty = len(rows) == job.claim.Limit
	e.read.fresh = e.read.fresh || e.read.plenty
	e.read.noDue = true // held rows are brought back by the janitor
	e.countLook(len(rows) == 0)
}

func (e *engine) giveBack(l *lane, o *outlet, row *Row) {
	if o.options.Sink == nil {
		e.alarmUnrouted(row.Message.Topic)
	}
	if len(e.read.except) < maxCachedTopics {
		e.read.except[row.Message.Topic] = o
	}
	e.putBackClaim(l, row)
}

// putBackClaim gives a claim back: others may have it.
func (e *engine) putBackClaim(l *lane, row *Row) {
	it := &item{row: *row, lane: l, stage: inSettle}
	l.known[row.ID] = it
	l.pinned++
	e.settle.add(it, it.settlement(StatePending))
}

// giveUp gives the claims of items back that were not handed over.
func (e *engine) giveUp(items []*item) {
	for _, it := range items {
		e.conclude(it, it.settlement(StatePending), false)
	}
}

// giveUpQueued gives back what waits when the relay stops.
func (e *engine) giveUpQueued() {
	for _, it := range e.lanes[rowsLane].known {
		if it.stage == inQueue {
			e.giveUp([]*item{it})
		}
	}
	for _, o := range e.outlets {
		o.queue = queue{}
	}
}

// extendJob asks for more time for all rows in memory.
func (e *engine) extendJob(job leaseJob) leaseJob {
	l := e.lanes[rowsLane]
	job.token, job.held = l.token, 1
	for id, it := range l.known {
		if it.stage == inQueue || it.stage == inFlight {
			job.rows = append(job.rows, id)
		}
	}
	slices.Sort(job.rows)
	return job
}

func (e *engine) extend(ctx context.Context, job leaseJob) ([]int64, error) {
	if len(job.rows) == 0 {
		return nil, nil
	}
	return e.store.Extend(ctx, job.token, job.rows, e.options.Lease)
}

// countClaimed counts, for a drain, the rows that anyone has claimed: those of
// a relay that died are waited for.
func (e *engine) countClaimed(ctx context.Context) (int64, error) {
	operator, ok := e.store.(Operator)
	if !ok || !e.options.Drain {
		return 0, nil
	}
	status, err := operator.Status(ctx)
	return status.Counts[StateClaimed], err
}

// dropLostRows drops what waits of rows that are claimed by others now.
func (e *engine) dropLostRows(r leaseResult) int {
	kept := map[int64]bool{}
	for _, id := range r.rows {
		kept[id] = true
	}
	lost := 0
	for _, id := range r.job.rows {
		if it := e.lanes[rowsLane].known[id]; it != nil && it.stage == inQueue && !kept[id] {
			e.drop(it)
			lost++
		}
	}
	return lost
}
