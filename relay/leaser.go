package relay

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// leasing is what the engine knows of its right to lanes, or to claimed rows.
type leasing struct {
	busy        bool
	next        time.Time     // the next renewal
	interval    time.Duration // from one to the next: 2 s at most, to notice relays that came or went
	safeUntil   time.Time     // nothing is sent after this, by the relay's own clock
	ended       bool          // the sends were cancelled because of it
	downUntil   time.Time     // it leaves its lanes to others, as it can't read
	yieldsUntil time.Time     // until then it acquires no lanes: another relay with its name may be about to
	relays      int           // that take part or are about to, and this one
	failures    int
	waits       bool // for the end of relays that have another setup: it takes no part
}

// rights are what a relay has when a renewal begins: leases of lanes, or claims of rows.
type rights interface {
	// renew keeps the rights, gives back those that were given up, and, if the relay takes
	// part, acquires what its share lacks. Without members the relay leaves, and keeps none.
	// The leaser calls it.
	renew(ctx context.Context, members storage.Members, takesPart bool) (renewed bool, err error)

	// conclude takes note of what renew has done, and says how many lanes the relay holds
	// now, and how many it has lost. The loop calls it.
	conclude(err error) (held, lost int)
}

// leaseJob asks for a sign of life and for longer rights, or, where the relay stops,
// for the end of both.
type leaseJob struct {
	rights     rights
	leave      bool
	standsDown bool // the relay is not to be counted, if there are others

	began   time.Time
	heard   time.Time       // when the members were; zero if they weren't
	members storage.Members // those that take part, and this one
	waits   string          // why this one doesn't
	renewed bool
	err     error
}

// leaser keeps the relay among the living ones, and its rights.
type leaser struct {
	base    *base
	process process
	setup   storage.Config
	named   bool // the relay's name is an operator's
	jobs    chan leaseJob
	results chan<- func()      // the loop calls each
	after   func(job leaseJob) // called in the loop when a job was carried out
}

// work carries out one job after the other, as much of each as it can.
func (l *leaser) work(ctx context.Context) {
	o := &l.base.options
	self := storage.Identity{Name: o.Name, Host: l.process.host, Version: o.Version, Claim: o.Claim, Config: l.setup}
	part := participation{base: l.base, process: l.process, self: self, takes: o.Join}
	predecessor := l.named // a relay of the same name may have run before: what it holds is ended first
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
				// FenceRelay failed. The next job tries it again, before the first heartbeat.
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
