package relay

import (
	"fmt"
	"sync/atomic"
	"time"
)

// health tells Healthy how the loop does.
type health struct {
	started atomic.Bool
	looped  atomic.Int64 // when the loop last came round, in nanoseconds since epoch
	reached atomic.Int64 // when the database last answered
	epoch   time.Time

	safeUntil atomic.Int64 // nothing is sent after it
	readFails atomic.Int64 // since when some kind of read has been failing; 0 if none is

	lease   lasting // the leases can't be renewed
	journal lasting // what is to be sent can't be written down
	reclaim lasting // by rows: what is due can't be brought back

	silentSince atomic.Int64 // since when every call of the database fails; 0 if the last one didn't

	readError  atomic.Pointer[string] // the last error of a read
	problem    atomic.Pointer[string] // the last error of the database; none once anything succeeds
	stuck      atomic.Pointer[string] // the last send that doesn't return
	unwritable atomic.Pointer[string] // what of the outcomes it refuses
	waits      atomic.Pointer[string] // why it takes no part; empty if it does, none before it is known
}

func (p *health) now() int64 { return int64(time.Since(p.epoch)) }

// readFailed is told of each read's error before readFails is.
func (p *health) readFailed(err error) {
	text := err.Error()
	p.readError.Store(&text)
}

// lasting is trouble with one kind of call. What isn't needed any more isn't tried any more: so
// trouble that didn't come again for a while is over.
type lasting struct {
	since, last atomic.Int64 // as health.now has it; 0: there is none
	problem     atomic.Pointer[string]
}

// unhealthy is the trouble if it has lasted for longer than a lease.
func (l *lasting) unhealthy(now int64, what string, lease time.Duration) error {
	since := l.since.Load()
	if since == 0 || time.Duration(now-since) <= lease || time.Duration(now-l.last.Load()) > 2*max(lease, 5*time.Second) {
		return nil
	}
	return fmt.Errorf("%s for %v: %s", what, time.Duration(now-since).Round(time.Second), *l.problem.Load())
}

func (p *health) lastProblem() string {
	if text := p.problem.Load(); text != nil {
		return *text
	}
	return "no answer"
}
