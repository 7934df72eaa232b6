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

// catchUpKey reads what a key left behind while it was held.
func (e *engine) catchUpKey() (readJob, bool) {
	e.read.behind = slices.DeleteFunc(e.read.behind, func(k *key) bool {
		return !k.lagging || k.held || k.lane.lost
	})
	for _, k := range e.read.behind {
		o := e.outlets[k.ref.outlet]
		if k.lane.draining || !o.roomy() || o.circuit.state != circuitUp {
			continue
		}
		position := Position{Lane: k.lane.Lane, After: k.behind, Until: k.lane.cursor, Key: k.ref.key}
		return readJob{kind: readKey, outlet: o, key: k, positions: []Position{position}, limit: min(o.room(), o.options.Batch), maxBytes: readBytes}, true
	}
	return readJob{}, false
}

// lookAtDue reads the held rows whose time has come.
func (e *engine) lookAtDue(now time.Time) (readJob, bool) {
	if e.read.dueAt.After(now) {
		return readJob{}, false
	}
	room, bytes := 0, 0
	for _, o := range e.outlets {
		if o.worthwhile(o.memory()) && (o.circuit.state == circuitUp || !e.anyUp()) {
			room, bytes = max(room, o.memory()), max(bytes, o.options.BufferBytes-o.bytes)
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
