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

// Claiming by rows: a claim writes the relay's token into a batch of free rows, in the order of Options.Pick. The rows belong to
// the relay until the claim expires. Lanes and keys are not used. The relay extends the claims of the rows in memory, and gives
// back rows that it doesn't send.

// byRows implements claiming by rows.
type byRows struct {
	engine *engine
	token  string
	known  map[int64]*item // rows in memory, by id

	except        map[string]*sinkQueue // topics that claims leave out, because their queues have no room
	asked         amount                // the maximum numbers of rows and bytes that the claims in progress may return together
	lastClaimFull bool                  // the last claim reached its limit of rows or bytes
	failingSince  int64                 // when claims began to fail, as a value of health.now; 0 if the last claim succeeded

	claims   chan claimJob
	claimed  int64        // used only in a drain: how many rows all relays together have claimed; -1 until they are counted
	reclaims atomic.Int64 // the number of calls of Reclaim that have succeeded
	freed    atomic.Int64 // the value of reclaims after the last call of Reclaim that freed rows
	since    int64        // the value of reclaims when the last claim that returned rows was merged
	looked   int64        // the value of reclaims when the last successful claim began
}

// amount is a number of rows and a number of bytes.
type amount struct{ rows, bytes int }

// claimJob is one call of Claim.
type claimJob struct {
	storage.ClaimRequest
	began    time.Time
	reclaims int64 // the value of byRows.reclaims when the claim began
}

const (
	// unknownRowBytes is the assumed size of a row before the first claim. It keeps the first claim from taking thousands of
	// large rows, which some databases must read to find their sizes.
	unknownRowBytes = 64 << 10

	// slowRowBytes is the assumed size of a row after a failed claim. The claim may have failed because reading large rows took too
	// long.
	slowRowBytes = 1 << 20

	// reclaimInterval is how often expired claims are freed and due deferred rows are made claimable.
	reclaimInterval = time.Second
)

func newByRows(e *engine) *byRows {
	r := &byRows{engine: e, token: fmt.Sprintf("%s/%016x", e.options.Name, rand.Uint64()), known: map[int64]*item{}, except: map[string]*sinkQueue{}, claimed: -1}
	r.claims = make(chan claimJob, r.claimers())
	e.readers = append(slices.Repeat([]func(context.Context){r.claimer}, r.claimers()), r.reclaimer)
	e.poll.rowBytes = unknownRowBytes
	return r
}

// claimers returns how many claims may run concurrently. Claiming a row costs the database more than all other work on the row, so on
// some databases a single claim at a time would be the bottleneck.
func (r *byRows) claimers() int { return r.engine.store.Parallelism().Claims }

// startRead starts a claim of at most as many rows as fit into the free room. While no sink is up it claims nothing, since other
// relays may be able to deliver the rows.
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

// worthClaiming returns how much to claim now. While another claim is in progress the amount is zero, unless the last claim was
// full and there is room for both. If rows are large, the amount is small, because a claim also locks rows that it doesn't take,
// and other relays skip locked rows.
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

// claimer carries out claims, one at a time, until the context ends.
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

// merge takes claimed rows into memory. It gives back rows for which there is no room, and the next claims leave out the
// topics of these rows. If the claim took more than half a lease, merge gives back all rows, since their claims would expire
// too soon.
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
			continue // the row's claim had expired, and this relay has claimed the row again
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

// oneSink returns the index of the queue for a claimed row. A row that needs several sinks waits like a row without a route,
// since only relays that claim by lanes deliver to several sinks.
func (r *byRows) oneSink(row *storage.Row) int {
	if queues := r.engine.routes.queuesOf(row.Message.Topic, row.Sinks); len(queues) == 1 {
		return queues[0]
	}
	return len(r.engine.names) - 1
}

// putBack gives back a row that was just claimed, as pending or scheduled. Until the new state is written, only the message's id
// is kept, since no buffer counts the message's bytes.
func (r *byRows) putBack(row *storage.Row, state storage.State) {
	row.Message = outbox.Message{ID: row.Message.ID}
	it := &item{row: *row, token: r.token, stage: inSettle}
	r.known[row.ID] = it
	r.engine.settle.add(it, result{state: state})
}

// block and unblock do nothing: a relay that claims by rows ignores keys.
func (r *byRows) block(*item)  {}
func (r *byRows) unblock(*key) {}

// settled removes an item from memory. No claim in progress can return its row, since claims return only free rows.
func (r *byRows) settled(it *item) {
	if r.known[it.row.ID] == it {
		delete(r.known, it.row.ID)
	}
}

// giveUp gives back the claim of an unsent item.
func (r *byRows) giveUp(it *item) { r.engine.settle.add(it, result{state: storage.StatePending}) }

func (r *byRows) giveUpQueued() {
	for _, it := range r.known {
		if it.stage == inQueue {
			r.giveUp(it)
		}
	}
}

// abandon gives back the items that wait for the sink of a stuck call, if all workers of the sink are stuck.
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

// controlled gives back waiting items that are paused now, and recomputes the topics that claims leave out.
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

// returned gives back those items of a job that are to be sent again but are paused now.
func (r *byRows) returned(f *flight) {
	for _, it := range f.items {
		r.giveBackPaused(it)
	}
}

// giveBackPaused gives back a waiting item that is paused for this relay.
func (r *byRows) giveBackPaused(it *item) {
	if it.stage == inQueue && (r.engine.control.standsDown && r.engine.lease.relays > 1 || it.queue.paused || r.engine.control.pauses.cover(it.row.Message.Topic, "", 0, nil)) {
		r.giveUp(it)
	}
}

// lookEverywhere does nothing: each claim considers all rows.
func (r *byRows) lookEverywhere() {}

// ownLanes returns nil, which stands for all lanes.
func (r *byRows) ownLanes() map[int]bool { return nil }

// drained reports whether three conditions hold. First, since the last claim that returned rows, Reclaim has run and found
// nothing. Second, a successful claim has begun since Reclaim last freed rows, so that claim has considered these rows. Third,
// other relays are active, or all claimed rows belong to this relay. Because of the third condition, the drain of the only active
// relay waits until the claims of a dead relay expire. Rows in this relay's memory are ignored: drained is called only when
// memory has no rows, or only rows that keep failing.
func (r *byRows) drained() bool {
	reclaims, freed := r.reclaims.Load(), r.freed.Load() // in this order
	return reclaims > max(r.since, freed) && r.looked >= freed && (r.claimed <= int64(len(r.known)) || r.engine.lease.relays > 1)
}

// reclaimer frees expired claims, and lets deferred rows be claimed when they are due. It does both in small batches.
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

// rowRights is a renewal of the claims that a relay had when the renewal began, and its result.
type rowRights struct {
	of         *byRows
	rows, kept []int64 // the ids of the rows whose claims are to be extended, and of the rows whose claims were kept
	anyones    int64   // how many rows all relays together have claimed
}

// rights returns the claims of the rows in memory, except rows of stuck calls. It includes a row that is being settled only if the
// row is unwritable or settlements are failing.
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

// renew extends the claims. In a drain it also counts the rows that all relays together have claimed, since the drain waits until
// the claims of a dead relay expire.
func (r *rowRights) renew(ctx context.Context, members storage.Members, _ bool) (renewed bool, err error) {
	if len(members.Relays) == 0 {
		return false, nil // the relay is leaving, and has already given back its waiting rows
	}
	if len(r.rows) > 0 {
		r.kept, err = r.of.engine.store.Extend(ctx, r.of.token, r.rows, r.of.engine.options.Lease)
	}
	if operator, ok := r.of.engine.store.(storage.Operator); ok && r.of.engine.options.Drain && err == nil {
		var status storage.Status
		status, err = operator.Status(ctx)
		if r.anyones = status.Counts[storage.StateClaimed]; !status.Has(storage.GaugeCounts) {
			r.anyones = 1 // the count is unknown, so other relays may have claimed rows
		}
	}
	return err == nil, err
}

// conclude drops waiting items whose claims were not kept.
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
