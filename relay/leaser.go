package relay

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// leasing is the state of the relay's leases of lanes, or of its claims of rows.
type leasing struct {
	busy        bool          // a renewal is in progress
	next        time.Time     // when the next renewal begins
	interval    time.Duration // the time between two renewals; at most 2 s, so that the relay soon notices when relays start or stop
	safeUntil   time.Time     // nothing is sent after this time, on the relay's own clock
	ended       bool          // safeUntil has passed, and the sends were cancelled
	downUntil   time.Time     // until this time, the relay leaves its lanes to other relays, because it can't read
	yieldsUntil time.Time     // until this time, the relay acquires no lanes, because another relay with its name may acquire them
	relays      int           // how many relays are active or about to become active, including this one
	failures    int           // how many consecutive renewals failed
	recovered   time.Time     // when a renewal last succeeded after a failed renewal
	waits       bool          // the relay stands by because relays with another configuration are active
}

// rights is one renewal of the relay's leases of lanes, or of its claims of rows: renew carries it out, and conclude applies its result.
type rights interface {
	// renew extends the leases or claims. If the relay claims by lanes, renew also releases the lanes that the relay gives up,
	// and then, if takesPart is true, acquires lanes up to the relay's share. In the last renewal of a run, the parameter members
	// is empty and renew extends nothing. The leaser calls renew.
	renew(ctx context.Context, members storage.Members, takesPart bool) (renewed bool, err error)

	// conclude applies the result of renew, and returns how many lanes the relay holds and how many it has lost. The loop
	// calls conclude.
	conclude(err error) (held, lost int)
}

// leaseJob is a heartbeat and a renewal. The last job of a run instead gives back the leases or claims, and deregisters the
// relay.
type leaseJob struct {
	rights     rights
	leave      bool
	standsDown bool // the relay gets no share if other relays are active

	began   time.Time
	heard   time.Time       // when the members were read; zero if they were not
	members storage.Members // the active relays, including this one
	waits   string          // why this relay stands by; empty if it is active
	renewed bool
	err     error
}

// leaser sends heartbeats and renews the relay's leases or claims.
type leaser struct {
	base    *base
	process process
	setup   storage.Config
	named   bool // the relay's name was set by its operator
	jobs    chan leaseJob
	results chan<- func()      // functions that the loop calls
	after   func(job leaseJob) // called by the loop with the result of a job
}

// work carries out jobs, one at a time, until the context ends.
func (l *leaser) work(ctx context.Context) {
	o := &l.base.options
	self := storage.Identity{Name: o.Name, Host: l.process.host, Version: o.Version, Claim: o.Claim, Config: l.setup}
	part := participation{base: l.base, process: l.process, self: self, takes: o.Join}
	predecessor := l.named // a relay with this name may have run before; FenceRelay ends its leases or claims
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-l.jobs:
			job.began = time.Now()
			bounded, cancel := context.WithTimeout(ctx, l.base.callTimeout)
			if predecessor {
				job.err = l.base.store.FenceRelay(bounded, o.Name, o.Claim)
				predecessor = job.err != nil
			}
			if predecessor {
				// FenceRelay failed. The next job calls it again, before the first heartbeat.
			} else if job.leave {
				if _, job.err = job.rights.renew(bounded, storage.Members{}, false); job.err == nil {
					job.err = l.base.store.Deregister(bounded, o.Name)
				}
			} else if job.members, job.waits, job.err = part.beat(bounded, job.standsDown); job.err == nil {
				job.heard = time.Now()
				takesPart := job.waits == "" && (!job.standsDown || len(job.members.Relays) == 1)
				job.renewed, job.err = job.rights.renew(bounded, job.members, takesPart)
			}
			cancel()
			l.base.reached("lease", job.began, job.err)
			l.results <- func() { l.after(job) }
		}
	}
}
