package relay

import "time"

// lane is a lane that the relay holds, and all that it remembers of it. When
// the lease is lost the lane is forgotten as a whole, and a new lease of the
// same lane begins with nothing.
//
// A relay that claims by rows has one lane for all its rows, with its token in
// the place of the lease.
type lane struct {
	Lease
	token string // by rows

	epoch   string // of the server that it was leased from
	base    int64  // its mark when it was leased: nothing can appear at or below it
	void    bool   // another server answers: nothing in memory of it counts
	unswept bool   // nobody has looked yet whether its mark is true: it isn't read before
	placed  bool   // a page has told that its ids go on from its cursor, or it was read from its beginning

	cursor   int64           // rows up to here have been read
	recheck  int64           // rows above this have to be looked for again; -1 for none
	scanning int64           // rows above this are being looked for; -1 for none
	known    map[int64]*item // rows in memory
	keys     map[keyRef]*key
	tickets  map[rowRef]*ticket
	alarmed  bool    // what it has without a route was met
	untold   bool    // not all keys that wait for another attempt are in keys: the database is asked about others
	left     []int64 // by outlet: rows above this of keys that wait, and are not in keys, were dropped; -1 for none
	lag      []int64 // by outlet: its rows above this were passed over and have to be read again; -1 for none

	seq      int64 // reads that began before the lease, or before ids began anew, don't count for it
	pinned   int   // items under way or not settled
	draining bool  // being given up: its part is another relay's
	lost     bool

	journaled bool // something of it is in the journal that has to be cleared
	crashes   int
	since     time.Time
}

const none = int64(-1)

func newLane(lease Lease, outlets int, now time.Time) *lane {
	l := &lane{Lease: lease, recheck: none, scanning: none, known: map[int64]*item{}, keys: map[keyRef]*key{}, tickets: map[rowRef]*ticket{}, lag: make([]int64, outlets), left: make([]int64, outlets), since: now}
	for i := range l.lag {
		l.lag[i], l.left[i] = none, none
	}
	return l
}

// startAt sets the lane to the marks that its last holder left.
func (l *lane) startAt(marks Marks, print string, outlets []*outlet) {
	l.cursor, l.base = marks.Main, marks.Main
	if marks.Routes != print {
		for _, mark := range marks.Sinks {
			l.cursor = min(l.cursor, mark)
		}
		return
	}
	for _, o := range outlets {
		if mark, ok := marks.Sinks[o.name]; ok && mark < l.cursor {
			l.lag[o.index] = mark
		}
	}
}

// marks says from where a successor would have to read. Nothing can appear any
// more at or below the horizon.
func (l *lane) marks(horizon int64, print string, outlets []*outlet) Marks {
	lowest := make([]int64, len(outlets))
	main := min(l.cursor, horizon)
	if again := lowestSet(l.recheck, l.scanning); again != none {
		main = min(main, again)
	}
	for i := range lowest {
		lowest[i] = main
		if place := lowestSet(l.lag[i], l.left[i]); place != none {
			lowest[i] = min(main, place)
		}
	}
	for _, it := range l.known {
		if it.outlet == nil {
			main = min(main, it.row.ID-1)
		} else if !it.row.Held || it.doubled {
			lowest[it.outlet.index] = min(lowest[it.outlet.index], it.row.ID-1)
		}
	}
	for ref, k := range l.keys {
		if k.lagging {
			lowest[ref.outlet] = min(lowest[ref.outlet], k.behind)
		}
	}
	return l.collect(lowest, main, print, outlets)
}

// collect gives the sinks that lag a mark of their own and the others a common one.
func (l *lane) collect(lowest []int64, main int64, print string, outlets []*outlet) Marks {
	marks := Marks{Routes: print, Main: main}
	for i, low := range lowest {
		if l.lag[i] == none {
			marks.Main = min(marks.Main, low)
			continue
		}
		if marks.Sinks == nil {
			marks.Sinks = map[string]int64{}
		}
		marks.Sinks[outlets[i].name] = low
	}
	return marks
}

// sending says that something of the lane is under way.
func (l *lane) sending() bool {
	for _, it := range l.known {
		if it.stage == inFlight {
			return true
		}
	}
	return false
}

// key returns the key's state, made where there was none.
func (l *lane) key(ref keyRef) *key {
	k := l.keys[ref]
	if k == nil {
		k = &key{ref: ref, lane: l}
		l.keys[ref] = k
	}
	return k
}

// forget drops the key's state once there is nothing to remember.
func (l *lane) forget(k *key) {
	if k != nil && k.idle() {
		delete(l.keys, k.ref)
	}
}

// fall notes that the outlet's rows from id on were passed over.
func (l *lane) fall(outlet int, id int64) {
	if l.lag[outlet] == none || id-1 < l.lag[outlet] {
		l.lag[outlet] = id - 1
	}
}

// beginScan notes that rows above a place are being looked for. What has to be
// looked for from now on is another matter.
func (l *lane) beginScan(after int64) { l.scanning, l.recheck = after, none }

// endScan ends a scan. Where it was in vain, or its rows are no longer wanted,
// they have to be looked for again.
func (l *lane) endScan(again bool) {
	if again {
		l.recheck = lowestSet(l.recheck, l.scanning)
	}
	l.scanning = none
}
