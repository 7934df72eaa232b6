package memstore

import (
	"slices"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// heldTable is the table of deferred rows, with indexes like a real table's, because a test may
// have a million rows.
type heldTable struct {
	rows   map[identity]*record
	byTime []*record // scheduled rows and retries, in the order of time and id
	byKey  map[laneKey][]*record
}

// laneKey is a blocked key and its lane.
type laneKey struct {
	lane int
	key  string
}

func newHeldTable() heldTable {
	return heldTable{rows: map[identity]*record{}, byKey: map[laneKey][]*record{}}
}

// put adds a row, or replaces an older version of the row.
func (h *heldTable) put(r *record) {
	h.take(r.identity())
	h.rows[r.identity()] = r
	if r.state != storage.StateError {
		at, _ := slices.BinarySearchFunc(h.byTime, r, byTime)
		h.byTime = slices.Insert(h.byTime, at, r)
	}
	if ref := (laneKey{r.row.Lane, r.row.Message.Key}); r.holds() {
		h.byKey[ref] = append(h.byKey[ref], r)
	}
}

// take removes the row with this identity, if the table has such a row.
func (h *heldTable) take(id identity) {
	r := h.rows[id]
	if r == nil {
		return
	}
	delete(h.rows, id)
	if at, there := slices.BinarySearchFunc(h.byTime, r, byTime); there {
		h.byTime = slices.Delete(h.byTime, at, at+1)
	}
	if ref := (laneKey{r.row.Lane, r.row.Message.Key}); r.holds() {
		h.byKey[ref] = slices.DeleteFunc(h.byKey[ref], func(other *record) bool { return other == r })
		if len(h.byKey[ref]) == 0 {
			delete(h.byKey, ref)
		}
	}
}

// holds reports whether the row blocks its key.
func (r *record) holds() bool {
	return (r.state == storage.StateRetry || r.row.Holds != storage.NoHold) && r.row.Message.Key != ""
}

func (r *record) heldKey() storage.BlockedKey {
	return storage.BlockedKey{Lane: r.row.Lane, Key: r.row.Message.Key, Topic: r.row.Message.Topic, Sinks: r.row.Sinks, ID: r.row.ID}
}

// clone returns a copy of the table with the same rows.
func (h *heldTable) clone() heldTable {
	copied := newHeldTable()
	for _, r := range h.rows {
		copied.put(r)
	}
	return copied
}
