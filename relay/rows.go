package relay

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
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
	e.read.rowBytes = unknownRowBytes
}

const (
	// unknownRowBytes is assumed of rows before there was one: the first claim shall
	// not be of thousands of large ones, which some databases read to know their size.
	unknownRowBytes = 64 << 10

	// slowRowBytes is assumed after a claim that failed: it may have taken too long for
	// its rows.
	slowRowBytes = 1 << 20
)

// claimRows claims as many rows as there is room for. While no sink is up it
// claims nothing: others may be able to deliver.
func (e *engine) claimRows(now time.Time) (readJob, bool) {
	maps.DeleteFunc(e.read.except, func(_ string, o *outlet) bool {
		again := o.roomy() && o.circuit.state == circuitUp
		e.read.fresh = e.read.fresh || again
		return again
	})
	worth := e.worthClaiming()
	if worth.rows == 0 {
		return readJob{}, false
	}
	unprompted := e.read.polled
	e.beginLook(now)
	e.read.asked.rows += worth.rows
	e.read.asked.bytes += worth.bytes
	return readJob{kind: readRows, claim: ClaimRequest{
		Relay: e.options.Name, Token: e.lanes[rowsLane].token, TTL: e.options.Lease, Limit: worth.rows, MaxBytes: worth.bytes,
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

// worthClaiming is what is claimed now. Beside another claim it is nothing, unless
// there was plenty and all would find room. Of rows that are large it asks for no more
// than will do: what a claim looks at and doesn't take, others miss meanwhile.
func (e *engine) worthClaiming() claimed {
	if !e.anyUp() {
		return claimed{}
	}
	room := claimed{rows: e.mostRoom(), bytes: e.mostBytes()}
	limit := claimed{rows: readLimit / e.mostReads(), bytes: min(room.bytes, readBytes/e.mostReads())}
	limit.rows = min(limit.rows, limit.bytes/max(1, e.read.rowBytes)+1)
	switch {
	case e.read.under == 0 && e.read.fresh:
		return claimed{min(room.rows, limit.rows), limit.bytes}
	case e.read.under > 0 && e.read.plenty && room.rows >= e.read.asked.rows+limit.rows && room.bytes >= e.read.asked.bytes+limit.bytes:
		return limit
	default:
		return claimed{}
	}
}

// mostBytes is the room of the outlet that has most, in bytes of payload.
func (e *engine) mostBytes() int {
	most := 0
	for _, o := range e.outlets {
		if o.roomy() && o.circuit.state == circuitUp {
			most = max(most, o.options.BufferBytes-o.bytes)
		}
	}
	return most
}

// mergeRows takes claimed rows into memory, and gives back those for which
// there is no room, with their topic left out of the next claims.
func (e *engine) mergeRows(job readJob, rows []Row) {
	l := e.lanes[rowsLane]
	late := time.Since(job.began) > e.options.Lease/2
	brought := payloads(rows)
	if len(rows) > 0 {
		e.read.rowBytes = max(e.read.rowBytes, brought/len(rows))
	}
	for i := range rows {
		row := &rows[i]
		if old := l.known[row.ID]; old != nil && old.row.Message.ID == row.Message.ID && (old.stage == inQueue || old.stage == inFlight) {
			continue // its claim had ended, and is ours again
		}
		o := e.outlets[e.routes.sink(row.Message.Topic)]
		switch {
		case row.Later:
			row.Message = outbox.Message{ID: row.Message.ID} // nobody sends it
			e.putAway(l, row)
		case late || e.stopping.begun:
			e.putBackClaim(l, row)
		case o.room() <= 0:
			e.giveBack(l, o, row)
		default:
			e.take(&item{row: *row, lane: l, outlet: o})
		}
	}
	e.read.plenty = len(rows) == job.claim.Limit || brought >= job.claim.MaxBytes
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

// putBackClaim gives a claim back: others may have it. Until that is written it keeps
// nothing of the message, whose bytes no buffer counts, but its id.
func (e *engine) putBackClaim(l *lane, row *Row) {
	row.Message = outbox.Message{ID: row.Message.ID}
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

// giveUpOutlet gives back what waits for a sink that has no worker left.
func (e *engine) giveUpOutlet(o *outlet) {
	for _, it := range e.lanes[rowsLane].known {
		if it.stage == inQueue && it.outlet == o {
			e.giveUp([]*item{it})
		}
	}
	o.queue, o.refused = queue{}, nil
}

// extendJob asks for more time for all rows in memory, but for those that a sink is
// stuck with.
func (e *engine) extendJob(job leaseJob) leaseJob {
	l := e.lanes[rowsLane]
	job.token, job.held = l.token, 1
	stuck, failing := e.stuckItems(), e.settle.failing()
	for id, it := range l.known {
		if stuck[it] {
			continue
		}
		if it.stage == inQueue || it.stage == inFlight || it.stage == inSettle && failing || it.unwritable {
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
