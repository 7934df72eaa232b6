package relay

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Claiming by rows: batches of free rows are stamped with the relay's token, in whichever
// order was asked for, and are the relay's until their claim ends. There are no lanes and
// no keys. What the relay doesn't send it gives back, and what is in memory it extends.

// byRows is a relay that claims by rows.
type byRows struct {
	engine *engine
	token  string
	known  map[int64]*item // rows in memory

	except        map[string]*sinkQueue // topics that are not to be claimed, as their queue has no room
	asked         amount                // what the claims under way may bring
	lastClaimFull bool                  // the last claim brought all that it asked for
	failingSince  int64                 // since when claims fail, by its clock; 0 if they don't

	claims   chan claimJob
	claimed  int64        // for a drain: rows that anyone has claimed; -1 before they were counted
	reclaims atomic.Int64 // how many calls of Reclaim have succeeded
	freed    atomic.Int64 // the number of the last of these calls that made rows free
	since    int64        // reclaims when the last claim that brought rows was taken in
	looked   int64        // reclaims when the last claim that succeeded had begun
}

// amount is a number of rows, and their bytes.
type amount struct{ rows, bytes int }

type claimJob struct {
	storage.ClaimRequest
	began    time.Time
	reclaims int64 // before
}

const (
	// unknownRowBytes is assumed of rows before there was one: the first claim shall
	// not be of thousands of large ones, which some databases read to know their size.
	unknownRowBytes = 64 << 10

	// slowRowBytes is assumed after a claim that failed: it may have taken too long for
	// its rows.
	slowRowBytes = 1 << 20

	// reclaimInterval is how often rows are freed whose claim has ended, and
	// deferred rows brought back that are due.
	reclaimInterval = time.Second
)

func newByRows(e *engine) *byRows {
	r := &byRows{engine: e, token: fmt.Sprintf("%s/%016x", e.options.Name, rand.Uint64()), known: map[int64]*item{}, except: map[string]*sinkQueue{}, claimed: -1}
	r.claims = make(chan claimJob, r.claimers())
	e.readers = append(slices.Repeat([]func(context.Context){r.claimer}, r.claimers()), r.reclaimer)
	e.poll.rowBytes = unknownRowBytes
	return r
}

// claimers is how many claims may be under way at once. To claim a row takes a
// database longer than all else that it does for it.
func (r *byRows) claimers() int { return r.engine.store.Parallelism().Claims }

// startRead claims as many rows as there is room for. While no sink is up it
// claims nothing: others may be able to deliver.
func (r *byRows) startRead(now time.Time) {
	if r.engine.poll.under >= r.claimers() || !r.engine.mayRead(now) || r.engine.control.standsDown && r.engine.lease.relays > 1 {
		return
	}
	r.engine.poll.notePollTime(now, r.engine.options.Poll)
	maps.DeleteFunc(r.except, func(_ string, q *sinkQueue) bool {
		again := q.hasReadRoom() && q.up()
		r.engine.poll.fresh = r.engine.poll.fresh || again
		return again
	})
	worth := r.worthClaiming()
	if worth.rows == 0 {
		return
	}
	except := slices.Collect(maps.Keys(r.except))
	if p := r.engine.control.pauses; p != nil {
		except = slices.AppendSeq(except, maps.Keys(p.topics))
	}
	slices.Sort(except)
	except = slices.Compact(except)
	unprompted := r.engine.poll.polled
	r.engine.poll.begin(now, r.engine.options.Poll)
	r.asked.rows += worth.rows
	r.asked.bytes += worth.bytes
	r.engine.poll.under++
	r.claims <- claimJob{began: now, reclaims: r.reclaims.Load(), ClaimRequest: storage.ClaimRequest{
		Relay: r.engine.options.Name, Token: r.token, TTL: r.engine.options.Lease, Limit: worth.rows, MaxBytes: worth.bytes,
		Pick: r.engine.options.Pick, Topics: r.engine.options.Topics, Except: except,
		Unprompted: unprompted,
	}}
}

// worthClaiming is what is claimed now. Beside another claim it is nothing, unless
// there was plenty and all would find room. Of rows that are large it asks for no more
// than will do: a claim locks rows that it doesn't take, and other relays pass over them.
func (r *byRows) worthClaiming() amount {
	if !anyUp(r.engine.queues) {
		return amount{}
	}
	room := amount{rows: r.engine.mostRoom(false)}
	for _, q := range r.engine.queues {
		if q.hasReadRoom() && q.up() {
			room.bytes = max(room.bytes, q.options.BufferBytes-q.bytes)
		}
	}
	limit := amount{rows: readLimit / r.claimers(), bytes: min(room.bytes, readBytes/r.claimers())}
	limit.rows = min(limit.rows, limit.bytes/max(1, r.engine.poll.rowBytes)+1)
	switch {
	case r.engine.poll.under == 0 && r.engine.poll.fresh:
		return amount{min(room.rows, limit.rows), limit.bytes}
	case r.engine.poll.under > 0 && r.lastClaimFull && room.rows >= r.asked.rows+limit.rows && room.bytes >= r.asked.bytes+limit.bytes:
		return limit
	default:
		return amount{}
	}
}

// claimer carries claims out, one after the other.
func (r *byRows) claimer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-r.claims:
			bounded, cancel := context.WithTimeout(ctx, r.engine.callTimeout)
			began := time.Now()
			rows, err := r.engine.store.Claim(bounded, job.ClaimRequest)
			cancel()
			r.engine.reached("claim", began, err)
			if r.engine.options.Tracer != nil {
				r.engine.traceClaimed(began, rows)
			}
			r.engine.results <- func() { r.merge(job, rows, err) }
		}
	}
}

// merge takes claimed rows into memory, and gives back those for which there is no
// room, with their topic left out of the next claims. A claim that took long is given
// back: it would end too soon.
func (r *byRows) merge(job claimJob, rows []storage.Row, err error) {
	r.engine.poll.under--
	r.asked.rows -= job.Limit
	r.asked.bytes -= job.MaxBytes
	if err != nil {
		if r.failingSince == 0 {
			r.failingSince = r.engine.health.now()
		}
		r.engine.health.readFailed(err)
		r.engine.health.readFails.Store(r.failingSince)
		if !r.engine.pauseReading(err) {
			r.engine.poll.rowBytes, r.lastClaimFull = max(r.engine.poll.rowBytes, slowRowBytes), false
		}
		return
	}
	r.failingSince, r.looked = 0, job.reclaims
	r.engine.health.readFails.Store(0)
	late := time.Since(job.began) > r.engine.options.Lease/2
	brought := payloads(rows)
	if len(rows) > 0 {
		r.engine.poll.rowBytes = max(r.engine.poll.rowBytes, brought/len(rows))
		r.since = r.reclaims.Load()
	}
	for i := range rows {
		row := &rows[i]
		if old := r.known[row.ID]; old != nil && old.row.Message.ID == row.Message.ID && (old.stage == inQueue || old.stage == inFlight) {
			continue // its claim had ended, and is ours again
		}
		q := r.engine.queues[r.oneSink(row)]
		switch {
		case row.Later:
			r.putBack(row, storage.StateScheduled)
		case late || r.engine.stopping.begun || r.engine.lease.waits:
			r.putBack(row, storage.StatePending)
		case r.engine.routes.tooOld(row, &r.engine.clock):
			it := &item{row: *row, token: r.token}
			r.known[row.ID] = it
			r.engine.expire(q, it)
		case r.engine.control.pauses.cover(row.Message.Topic, "", 0, nil):
			r.putBack(row, storage.StatePending)
		case q.room() <= 0 || q.paused:
			if q.options.Sink == nil {
				r.engine.unrouted.waits(row)
			}
			if len(r.except) < maxCachedTopics {
				r.except[row.Message.Topic] = q
			}
			r.putBack(row, storage.StatePending)
		default:
			it := &item{row: *row, token: r.token, queue: q}
			r.known[row.ID] = it
			q.add(it)
			r.engine.poll.rowBytes += (it.bytes - r.engine.poll.rowBytes) / 16
		}
	}
	r.lastClaimFull = len(rows) == job.Limit || brought >= job.MaxBytes
	r.engine.poll.fresh = r.engine.poll.fresh || r.lastClaimFull
	r.engine.poll.count(len(rows) == 0)
	r.engine.options.Observer.Polled(len(rows))
}

// oneSink returns the queue of a claimed row's only sink. One that several still need, as it was
// written for a relay by lanes, waits as one without a route does.
func (r *byRows) oneSink(row *storage.Row) int {
	if queues := r.engine.routes.queuesOf(row.Message.Topic, row.Sinks); len(queues) == 1 {
		return queues[0]
	}
	return len(r.engine.names) - 1
}

// putBack gives a claim back: others may have it, now or at its time. Until that is
// written it keeps nothing of the message, whose bytes no buffer counts, but its id.
func (r *byRows) putBack(row *storage.Row, state storage.State) {
	row.Message = outbox.Message{ID: row.Message.ID}
	it := &item{row: *row, token: r.token, stage: inSettle}
	r.known[row.ID] = it
	r.engine.settle.add(it, result{state: state})
}

// block and unblock have nothing to do: without keys nobody waits for another.
func (r *byRows) block(*item)  {}
func (r *byRows) unblock(*key) {}

// settled forgets an item. A claim stamps what it returns, and so none that is under
// way can bring the row back.
func (r *byRows) settled(it *item) {
	if r.known[it.row.ID] == it {
		delete(r.known, it.row.ID)
	}
}

// giveUp gives the claim of an item back that was not handed over.
func (r *byRows) giveUp(it *item) { r.engine.settle.add(it, result{state: storage.StatePending}) }

func (r *byRows) giveUpQueued() {
	for _, it := range r.known {
		if it.stage == inQueue {
			r.giveUp(it)
		}
	}
}

// abandon gives back what waits for a sink that has no worker left.
func (r *byRows) abandon(f *flight) {
	q := f.queue
	if !q.allStuck {
		return
	}
	for _, it := range r.known {
		if it.stage == inQueue && it.queue == q {
			r.giveUp(it)
		}
	}
	q.waiting, q.suspended = waitingLine{}, nil
}

// controlled gives back what waits and is paused. What is left out of claims is decided anew.
func (r *byRows) controlled(*pauses) {
	clear(r.except)
	for _, q := range r.engine.queues {
		for topic, to := range r.engine.routes.exact {
			if q.paused && len(r.engine.routes.route(topic).sinks) == 1 && to.sinks[0] == q.index {
				r.except[topic] = q
			}
		}
	}
	for _, it := range r.known {
		r.giveBackPaused(it)
	}
}

// returned gives back what was to be sent again, and is paused meanwhile.
func (r *byRows) returned(f *flight) {
	for _, it := range f.items {
		r.giveBackPaused(it)
	}
}

// giveBackPaused gives back an item that waits and is paused: others may go on with it.
func (r *byRows) giveBackPaused(it *item) {
	if it.stage == inQueue && (r.engine.control.standsDown && r.engine.lease.relays > 1 || it.queue.paused || r.engine.control.pauses.cover(it.row.Message.Topic, "", 0, nil)) {
		r.giveUp(it)
	}
}

// lookEverywhere has nothing to do: each claim looks at all rows.
func (r *byRows) lookEverywhere() {}

// ownLanes are all: rows of any lane are claimed.
func (r *byRows) ownLanes() map[int]bool { return nil }

// drained says three things. Reclaim has found nothing since the last row came. A claim has begun since Reclaim last
// made rows free, and so has looked for these. And unless other relays take part, no row is claimed by others: the
// claims of a dead relay are waited for. Its own are messages that fail while nothing else is delivered.
func (r *byRows) drained() bool {
	reclaims, freed := r.reclaims.Load(), r.freed.Load() // in this order
	return reclaims > max(r.since, freed) && r.looked >= freed && (r.claimed <= int64(len(r.known)) || r.engine.lease.relays > 1)
}

// reclaimer frees rows whose claim has ended, and brings back those that are due: in
// small batches, until there is none.
func (r *byRows) reclaimer(ctx context.Context) {
	for more := true; more || sleep(ctx, reclaimInterval); {
		bounded, cancel := context.WithTimeout(ctx, r.engine.callTimeout)
		n, err := r.engine.store.Reclaim(bounded, purgeBatch)
		cancel()
		r.engine.tried(&r.engine.health.reclaim, err)
		if more = n == purgeBatch && err == nil && ctx.Err() == nil; err != nil {
			r.engine.failed("reclaim", err)
			continue
		}
		if n > 0 {
			r.freed.Store(r.reclaims.Load() + 1)
		}
		if r.reclaims.Add(1); n > 0 {
			r.engine.wake.wake()
		}
	}
}

// rowRights are the claims of rows that a relay has when a renewal begins, and those
// of them that it could extend.
type rowRights struct {
	of         *byRows
	rows, kept []int64
	anyones    int64 // rows that anyone has claimed
}

// rights are the claims of all rows in memory, but for those that a sink is stuck with
// and those that are about to be settled.
func (r *byRows) rights(bool) rights {
	stuck := map[*item]bool{}
	for _, q := range r.engine.queues {
		for f := range q.flights {
			for _, it := range f.items {
				stuck[it] = f.stuck
			}
		}
	}
	claims, failing := &rowRights{of: r}, r.engine.settle.failing()
	for id, it := range r.known {
		if !stuck[it] && (it.stage == inQueue || it.stage == inFlight || it.stage == inSettle && failing || it.unwritable) {
			claims.rows = append(claims.rows, id)
		}
	}
	slices.Sort(claims.rows)
	return claims
}

// renew extends the claims. For a drain it also counts the rows that anyone has
// claimed: those of a relay that died are waited for.
func (r *rowRights) renew(ctx context.Context, members storage.Members, _ bool) (renewed bool, err error) {
	if len(members.Relays) == 0 {
		return false, nil // it leaves, and what waited was given back before
	}
	if len(r.rows) > 0 {
		r.kept, err = r.of.engine.store.Extend(ctx, r.of.token, r.rows, r.of.engine.options.Lease)
	}
	if operator, ok := r.of.engine.store.(storage.Operator); ok && r.of.engine.options.Drain && err == nil {
		var status storage.Status
		status, err = operator.Status(ctx)
		if r.anyones = status.Counts[storage.StateClaimed]; !status.Has(storage.GaugeCounts) {
			r.anyones = 1 // there may be some
		}
	}
	return err == nil, err
}

// conclude drops what waits of rows that are claimed by others now.
func (r *rowRights) conclude(error) (held, lost int) {
	r.of.claimed = r.anyones
	slices.Sort(r.kept)
	for _, id := range r.rows {
		if _, kept := slices.BinarySearch(r.kept, id); kept {
			continue
		}
		if it := r.of.known[id]; it != nil && it.stage == inQueue {
			it.stage = dropped
			it.queue.release(it)
			r.of.settled(it)
			lost++
		}
	}
	return 0, lost
}
