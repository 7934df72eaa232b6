package relay

import "github.com/rowrelay/rowrelay/relay/storage"

// A reader is one sink's part of a lane. This file decides what a sink does with a row that
// it meets, and from where it has to read again. It has no clock, channel, goroutine or store.
//
//	             mark of B              mark of A
//	  floor          │     gap[B]           │         cursor[B]               cursor[A] = head
//	 ───┴────────────┴───────┴──────────────┴────────────┴────────────────────────┴─────────────▶ id
//	    nothing can          some rows of B above        B reads alone up to      not read yet; all
//	    appear at            were left out               the head once it         sinks that stand
//	    or below             deliberately                has room                 here read together
//
// A blocked key has a place, too, resumeFrom: its rows above were dropped, and are read once it is unblocked.
//
// What must hold: a row of a sink at or below the sink's cursor is finished, or known, or above
// the place of its key, or above the gap and left out by a rule, or has appeared late and isn't
// reported yet. So the mark is below the cursor, the gap, the places of keys, and the known rows.

// reader is one sink's part of a lane.
type reader struct {
	cursor    int64 // rows up to here were met
	gap       int64 // some rows above this were left out: they are paused, or their blocked key was forgotten; or none
	routeless bool  // it is for rows without a route, and never has room

	known map[int64]*item // rows in memory, by id
	keys  map[string]*key
}

// none is no place.
const none = int64(-1)

// newReader is a reader that has met the rows up to a place.
func newReader(cursor int64) reader {
	return reader{cursor: cursor, gap: none, known: map[int64]*item{}, keys: map[string]*key{}}
}

// meeting is what the engine knows of a row that a reader meets.
type meeting struct {
	room     int  // of the sink, for such a row
	paused   bool // the row is
	leaving  bool // the lane is being given up
	keyKnown bool // it is known whether the row's key is blocked
}

// answer is what a reader does with a row.
type answer int

const (
	rowTaken   answer = iota // it comes into memory
	rowKnown                 // it is there already
	rowDoubled               // another message with its id is there
	rowBeyond                // the reader reads it later: it stands before the row
	rowLater                 // it is to be scheduled for its time
	rowPaused                // it is left out until the pause ends
	rowUnasked               // it must be asked first whether the row's key is blocked
	rowBehind                // it is read when its key is unblocked, or with the deferred rows
	rowStopped               // the reader stops before it: there is no room, or the lane is being given up
)

// offer decides what the reader does with a row, and notes from where it reads a row again that it
// doesn't take. Rows of a page are offered in the order of ids, once advance has moved the cursor past them.
func (r *reader) offer(row *storage.Row, m meeting) answer {
	if it := r.known[row.ID]; it != nil {
		if it.row.Message.ID != row.Message.ID && !row.Deferred {
			return rowDoubled
		}
		return rowKnown
	}
	k := r.keys[row.Message.Key]
	switch {
	case !row.Deferred && row.ID > r.cursor:
		return rowBeyond
	case m.leaving:
		r.stopBefore(row)
		return rowStopped
	case row.Later && !row.Deferred: // whatever its key does
		return rowLater
	case m.paused:
		if !row.Deferred {
			r.leaveOut(row.ID)
		}
		return rowPaused
	case k == nil && row.Message.Key != "" && !m.keyKnown:
		return rowUnasked
	case !k.takes(row):
		return rowBehind
	case m.room <= 0:
		r.stopBefore(row)
		return rowStopped
	default:
		return rowTaken
	}
}

// stopBefore has the reader meet the row again, unless it is a deferred one, which is found by its time.
func (r *reader) stopBefore(row *storage.Row) {
	if !row.Deferred {
		r.rewind(row.ID - 1)
	}
}

// rewind has all rows above a place met again. Those in memory are known then.
func (r *reader) rewind(place int64) {
	r.cursor = min(r.cursor, place)
	if r.gap >= r.cursor {
		r.gap = none
	}
}

// leaveOut notes that a row isn't in memory, though the cursor has passed it.
func (r *reader) leaveOut(id int64) {
	if id <= r.cursor {
		r.gap = lowestSet(r.gap, id-1)
	}
}

// closeGap has the rows met again that were left out.
func (r *reader) closeGap() {
	if r.gap != none {
		r.rewind(r.gap)
	}
}

// low is the place above which a successor would have to read for this sink. Deferred rows
// are found by their times, unless a pending row waits that has the same id.
func (r *reader) low() int64 {
	low := r.cursor
	if r.gap != none {
		low = min(low, r.gap)
	}
	for id, it := range r.known {
		if !it.row.Deferred || it.idCollision {
			low = min(low, id-1)
		}
	}
	for _, k := range r.keys {
		if k.dropped {
			low = min(low, k.resumeFrom)
		}
	}
	return low
}

// takes says whether the row may come into memory. It may not while the key is blocked, unless it is the held row that
// blocks it, nor while the database must first be asked again (fromDatabase): then the key also remembers to read a
// pending row later (dropAt). Nor may a pending row above resumeFrom, as it would overtake others.
func (k *key) takes(row *storage.Row) bool {
	switch {
	case k == nil:
		return true
	case k.blocked && (k.blockedBy != row.ID || !row.Deferred), k.fromDatabase && !k.blocked:
		if !row.Deferred {
			k.dropAt(row.ID)
		}
		return false
	default:
		return row.Deferred || !k.dropped || row.ID <= k.resumeFrom
	}
}

// dropAt remembers that the row was dropped and must be read again.
func (k *key) dropAt(id int64) {
	if !k.dropped || id-1 < k.resumeFrom {
		k.resumeFrom = id - 1
	}
	k.dropped = true
}

// places are a copy of a reader's, for a scan.
type places struct {
	cursor, gap int64
	resumeFrom  map[string]int64 // by key, of those of which rows were dropped
}

func (r *reader) places() places {
	p := places{cursor: r.cursor, gap: r.gap}
	for name, k := range r.keys {
		if k.dropped {
			if p.resumeFrom == nil {
				p.resumeFrom = map[string]int64{}
			}
			p.resumeFrom[name] = k.resumeFrom
		}
	}
	return p
}

// willMeet says that the reader meets a row yet, or once more.
func (p *places) willMeet(id int64, key string) bool {
	from, dropped := p.resumeFrom[key]
	return id > p.cursor || dropped && id > from
}

// mayLeaveOut says that the reader may have left a row out by a rule, and then meets it when that holds no longer.
func (p *places) mayLeaveOut(id int64) bool { return p.gap != none && id > p.gap }

// readers are those of a lane.
type readers []reader

// head is where what is new is read from: the highest cursor of a sink. The reader of rows without a
// route doesn't count, as it has room for none: where its cursor is above the head, it stands at the head.
func (rs readers) head() (head int64) {
	for i := range rs {
		if !rs[i].routeless {
			head = max(head, rs[i].cursor)
		}
	}
	return head
}

// isBehind says that rows of the queue below the head are still to be read.
func (rs readers) isBehind(queue int) bool { return rs[queue].cursor < rs.head() }

// advance moves the readers on that a page was read for (takesPart; nil: all), from a place below their cursors to
// another one. Then the page's rows are offered to them, and they stop where they must.
func (rs readers) advance(after, through int64, takesPart func(queue int) bool) {
	for i := range rs {
		if rs[i].cursor >= after && (takesPart == nil || takesPart(i)) {
			rs[i].cursor = max(rs[i].cursor, through)
		}
	}
}

// rewind has all rows above a place met again, by all readers.
func (rs readers) rewind(place int64) {
	for i := range rs {
		rs[i].rewind(place)
	}
}

// marks returns from where a successor has to read: with all sinks that aren't behind the head, and by
// queue for each of those that are. Late rows may still appear above final.
func (rs readers) marks(final int64) (main int64, behind map[int]int64) {
	head := rs.head()
	main, behind = min(head, final), map[int]int64{}
	for i := range rs {
		if low := min(rs[i].low(), final); rs[i].cursor < head {
			behind[i] = low
		} else {
			main = min(main, low)
		}
	}
	return main, behind
}

// lowestSet returns the lower of two places of which negative ones aren't set.
func lowestSet(a, b int64) int64 {
	if a < 0 || (b >= 0 && b < a) {
		return max(b, none)
	}
	return a
}
