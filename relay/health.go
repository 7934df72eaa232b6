package relay

import (
	"fmt"
	"sync/atomic"
	"time"
)

// health records the facts about a run that [Relay.Healthy] checks. All goroutines may use it. Times are nanoseconds since the
// time in health.epoch.
type health struct {
	started atomic.Bool
	looped  atomic.Int64 // when the loop's last iteration began
	reached atomic.Int64 // when a call to the database last succeeded
	epoch   time.Time

	safeUntil atomic.Int64 // when the relay stops sending, unless its leases are renewed
	readFails atomic.Int64 // when reads of some kind began to fail; 0 if no kind is failing

	lease   lasting // failures to renew leases
	journal lasting // failures to write journals
	reclaim lasting // failures to free expired claims, when claiming by rows
	settle  lasting // failures to write outcomes

	silentSince atomic.Int64 // the time of the first failed call since the last successful one; 0 if the last call succeeded

	readError  atomic.Pointer[string] // the last error of a read
	problem    atomic.Pointer[string] // the error of the last call to the database; nil if it succeeded
	stuck      atomic.Pointer[string] // describes a call to a sink that hangs; nil if no call hangs
	unwritable atomic.Pointer[string] // describes outcomes that the database refuses; nil if it refuses none
	waits      atomic.Pointer[string] // why the relay stands by; empty if it is active, nil if this isn't known yet
}

func (p *health) now() int64 { return int64(time.Since(p.epoch)) }

// readFailed keeps the error of a read. It is called before readFails is set.
func (p *health) readFailed(err error) {
	text := err.Error()
	p.readError.Store(&text)
}

// A lasting tracks whether one kind of call keeps failing. A call that is no longer needed is not repeated, so no success follows
// its last failure. Therefore the call is no longer considered failing if its last failure is older than twice the time-out of a
// call.
type lasting struct {
	since, last atomic.Int64 // the times of the first and the last failure, on the clock of health.now; since is 0 after a success
	problem     atomic.Pointer[string]
}

// unhealthy returns an error if the call has been failing for longer than a lease.
func (l *lasting) unhealthy(now int64, what string, lease time.Duration) error {
	since := l.since.Load()
	if since == 0 || time.Duration(now-since) <= lease || time.Duration(now-l.last.Load()) > 2*max(lease, 5*time.Second) {
		return nil
	}
	return fmt.Errorf("%s (for %v): %s", what, time.Duration(now-since).Round(time.Second), *l.problem.Load())
}

func (p *health) lastProblem() string {
	if text := p.problem.Load(); text != nil {
		return *text
	}
	return "no answer"
}
