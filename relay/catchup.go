package relay

import (
	"slices"
	"time"
)

// catchUpOutlet reads what an outlet passed over while it had no room.
func (e *engine) catchUpOutlet() (readJob, bool) {
	for _, o := range e.outlets {
		if !o.roomy() || o.circuit.state != circuitUp || !e.lagging(o) {
			continue
		}
		var positions []Position
		for _, l := range e.lanesInTurn() {
			if l.lag[o.index] != none && !l.draining {
				positions = append(positions, Position{Lane: l.Lane, After: l.lag[o.index], Until: l.cursor})
			}
		}
		if len(positions) > 0 {
			return readJob{kind: readOutlet, outlet: o, positions: positions, limit: min(o.room(), readLimit), maxBytes: readBytes}, true
		}
	}
	return readJob{}, false
}

// lagging says that the outlet has passed over something.
func (e *engine) lagging(o *outlet) bool {
	return slices.ContainsFunc(e.sortedLanes(), func(l *lane) bool { return l.lag[o.index] != none })
}

// catchUpKeys is how many keys are caught up with by one read.
const catchUpKeys = 64

// catchUpKey reads what keys of an outlet left behind while they were held. A read
// of a key walks over all that waits in its lane, which may be much: so it goes only
// so far that it doesn't keep the reader for long.
func (e *engine) catchUpKey() (readJob, bool) {
	e.read.behind = slices.DeleteFunc(e.read.behind, func(k *key) bool {
		return !k.lagging || k.held || k.lane.lost
	})
	for _, o := range e.outlets {
		o.freed = 0
	}
	e.read.keyStride = max(e.read.keyStride, leastStride)
	job := readJob{kind: readKey, maxBytes: readBytes}
	for _, k := range e.read.behind {
		o := e.outlets[k.ref.outlet]
		o.freed++
		if len(job.keys) == catchUpKeys || k.lane.draining || job.outlet != o && (job.outlet != nil || !o.roomy() || o.circuit.state != circuitUp) || k.mustWait() {
			continue
		}
		job.outlet = o
		job.keys = append(job.keys, k)
	}
	if job.outlet == nil {
		return job, false
	}
	slices.SortStableFunc(job.keys, func(a, b *key) int { return a.lane.Lane - b.lane.Lane })
	for _, k := range job.keys {
		job.positions = append(job.positions, Position{Lane: k.lane.Lane, After: k.behind, Until: min(k.lane.cursor, k.behind+int64(e.read.keyStride)), Key: k.ref.key})
	}
	job.limit = min(job.outlet.room(), readLimit)
	return job, true
}

// leastStride is how many ids a read that catches up with keys goes on at least.
const leastStride = 1 << 16

// stride is how many ids a read goes on that may pass over many rows, or over entries
// of rows that are gone.
type stride int64

const minStride = 1000

// learn lets the next read go further if this one was quick, and less far if it took
// so long that others waited for it.
func (s *stride) learn(took time.Duration) {
	switch {
	case took < 20*time.Millisecond:
		*s = min(2**s, 1<<40)
	case took > 100*time.Millisecond:
		*s = max(*s/2, minStride)
	}
}

// failed makes the next read much shorter: this one took too long.
func (s *stride) failed() { *s = max(*s/8, minStride) }

// lookAtDue reads the held rows whose time has come.
func (e *engine) lookAtDue(now time.Time) (readJob, bool) {
	if e.read.dueAt.After(now) {
		return readJob{}, false
	}
	room, bytes := 0, 0
	for _, o := range e.outlets {
		if o.worthwhile(o.roomAgain(), o.options.Buffer/2) && (o.circuit.state == circuitUp || !e.anyUp()) {
			room, bytes = max(room, o.roomAgain()), max(bytes, o.options.BufferBytes-o.bytes)
		}
	}
	if room == 0 {
		return readJob{}, false // whatever frees memory brings the loop here again
	}
	var lanes []int
	for _, l := range e.sortedLanes() {
		if !l.draining {
			lanes = append(lanes, l.Lane)
		}
	}
	return readJob{kind: readDue, lanes: lanes, cursor: e.read.cursor, limit: min(room, readLimit), maxBytes: min(bytes, readBytes)}, len(lanes) > 0
}
