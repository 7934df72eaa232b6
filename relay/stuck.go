package relay

import (
	"fmt"
	"time"
)

// A sink that doesn't return though its context has ended can't be stopped from
// outside. Nothing of its lanes is sent any more, and their leases end by
// themselves: another relay sends the messages again, as where a process had been
// stopped in the midst of them. A relay all of whose workers of a sink are stuck
// leaves its lanes to others, if there are any.

// stuckGrace is how long a send may take beyond its time-out.
const stuckGrace = 5 * time.Second

// flight is a job under way.
type flight struct {
	job   job
	began time.Time
	stuck bool
}

// lookForStuck notes which sends should have returned long ago.
func (e *engine) lookForStuck(now time.Time) {
	for _, o := range e.outlets {
		for f := range o.flights {
			if !f.stuck && now.Sub(f.began) > o.options.Timeout+stuckGrace {
				f.stuck = true
				e.isStuck(o, f, now)
			}
		}
	}
}

// isStuck tells of a send that doesn't return, and lets its lanes go.
func (e *engine) isStuck(o *outlet, f *flight, now time.Time) {
	text := o.describe(f, now)
	e.pulse.stuck.Store(&text)
	e.options.Logger.Error("relay: "+text+"; it ignores its context, and its lanes are left to end", "relay", e.options.Name, "sink", o.name)
	e.options.Observer.Failed("stuck", fmt.Errorf("%s", text))
	for _, it := range f.job.batch {
		if l := it.lane; e.lanes[l.Lane] == l && e.options.Claim == ByLanes {
			e.dropLane(l)
		}
	}
	if e.options.Claim == ByRows && o.allStuck() {
		e.giveUpOutlet(o)
	}
}

// describe names a send, and what it sends.
func (o *outlet) describe(f *flight, now time.Time) string {
	text := fmt.Sprintf("sink %q appears to be stuck: it did not return from %s for %v", o.name, "Open", now.Sub(f.began).Round(time.Second))
	if len(f.job.batch) > 0 {
		m := &f.job.batch[0].row.Message
		text = fmt.Sprintf("sink %q appears to be stuck: it did not return from Send for %v, with %d messages, the first of topic %q with the id %s",
			o.name, now.Sub(f.began).Round(time.Second), len(f.job.batch), m.Topic, m.ID)
	}
	return text
}

// landed forgets a job that has returned.
func (e *engine) landed(o *outlet, f *flight) {
	delete(o.flights, f)
	if f.stuck && !e.anyStuck() {
		e.pulse.stuck.Store(nil)
		e.options.Logger.Info("relay: what was stuck has returned", "relay", e.options.Name, "sink", o.name)
	}
}

func (e *engine) anyStuck() bool {
	for _, o := range e.outlets {
		for f := range o.flights {
			if f.stuck {
				return true
			}
		}
	}
	return false
}

// allStuck says that the outlet has no worker left.
func (o *outlet) allStuck() bool {
	if len(o.flights) < o.options.Workers || len(o.flights) == 0 {
		return false
	}
	for f := range o.flights {
		if !f.stuck {
			return false
		}
	}
	return true
}

// standsDown says that a sink has no worker left here, so that others should have
// the lanes.
func (e *engine) standsDown() bool {
	for _, o := range e.outlets {
		if o.allStuck() {
			return true
		}
	}
	return false
}

// stuckItems are those of sends that don't return.
func (e *engine) stuckItems() map[*item]bool {
	var stuck map[*item]bool
	for _, o := range e.outlets {
		for f := range o.flights {
			if !f.stuck {
				continue
			}
			if stuck == nil {
				stuck = map[*item]bool{}
			}
			for _, it := range f.job.batch {
				stuck[it] = true
			}
		}
	}
	return stuck
}
