package relay

import (
	"slices"
)

// hold lets nothing of the key be sent but the message with this id. What waits
// behind it is dropped, and read again later.
func (e *engine) hold(k *key, id int64) {
	if k == nil || k.lane.lost {
		return
	}
	if !k.held {
		e.outlets[k.ref.outlet].held++
	}
	k.held, k.holder = true, id
	for _, it := range slices.Clone(k.items) {
		if it.row.ID != id {
			e.leaveBehind(it)
		}
	}
}

// leaveBehind drops an item of a held key; it is read again later.
func (e *engine) leaveBehind(it *item) {
	it.key.remove(it)
	if !it.row.Held {
		it.key.dropAt(it.row.ID)
	}
	e.drop(it)
}

// letGo ends a hold, and has what was left behind read again.
func (e *engine) letGo(k *key) {
	if !k.held {
		return
	}
	k.held, k.holder = false, 0
	e.outlets[k.ref.outlet].held--
	if k.lagging {
		e.read.behind = append(e.read.behind, k)
	}
}

// goOn lets the next messages of the key have their turn.
func (e *engine) goOn(k *key) {
	if k == nil {
		return
	}
	e.line(k)
	k.lane.forget(k)
}
