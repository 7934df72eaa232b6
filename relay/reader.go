package relay

import (
	"context"
	"time"
)

// reader carries out reads, one after the other.
func (e *engine) reader(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-e.reads:
			result := e.carryOut(ctx, job)
			select {
			case e.didRead <- result:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (e *engine) carryOut(ctx context.Context, job readJob) readResult {
	result := readResult{job: job}
	switch job.kind { // of several steps, each with a time of its own
	case readLate:
		result.page, result.left, result.err = e.scanLate(ctx, job)
		return result
	case readSweep:
		return e.sweepStep(ctx, job)
	case readBeyond:
		return e.readBeyond(ctx, job)
	}
	ctx, cancel := context.WithTimeout(ctx, e.operationTimeout())
	defer cancel()
	switch job.kind {
	case readDue:
		result.page.Rows, result.cursor, result.err = e.store.Due(ctx, job.lanes, job.cursor, job.limit, job.maxBytes)
	case readHeld:
		result.held, result.err = e.store.HeldKeys(ctx, job.lanes, job.limit)
	case readAmong:
		result.held, result.page.LateAfter, result.err = e.askAmong(ctx, job)
	case readHolders:
		result.held, result.err = e.store.HeldAmong(ctx, job.ask)
	case readRows:
		result.page.Rows, result.err = e.store.Claim(ctx, job.claim)
	default:
		result.page, result.err = e.store.Read(ctx, job.positions, job.limit, job.maxBytes)
	}
	e.reached(result.err)
	return result
}

// askAmong asks which keys of a page wait for another attempt. The answer counts only
// if it comes from the server of the page as that was: one that has fallen back knows
// of no retry that was written since, and the page has nothing of what waits by it.
func (e *engine) askAmong(ctx context.Context, job readJob) (held []HeldKey, lateAfter int64, err error) {
	held, err = e.store.HeldAmong(ctx, job.ask)
	epoch, known := job.outer.epoch()
	if err != nil || !known {
		return held, none, err
	}
	lateAfter, err = e.appearedSince(ctx, epoch)
	return held, lateAfter, err
}

// epoch names the state of the server that a page of lanes comes from.
func (r *readResult) epoch() (epoch string, known bool) {
	if r.job.kind == readLate {
		return r.job.scan.epoch, true
	}
	return r.page.Epoch, r.job.kind.visitsLanes()
}

// operationTimeout bounds one call of the database: a connection that answers
// no more must not hold the relay for longer than its lease.
func (e *engine) operationTimeout() time.Duration { return max(e.options.Lease, 5*time.Second) }
