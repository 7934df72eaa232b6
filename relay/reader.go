package relay

import "github.com/rowrelay/rowrelay/relay/storage"

// A reader is the part of a lane that belongs to one sink. This file decides, for each sink, whether a row that was read is
// taken into memory, and from which position rows must be read again. The file uses no clock, channel, goroutine or store.
//
// An example with two sinks, A and B, where B is behind:
//
//	             mark of B              mark of A
//	  floor          │     gap[B]           │         cursor[B]               cursor[A] = head
//	 ───┴────────────┴───────┴──────────────┴────────────┴────────────────────────┴─────────────▶ id
//	    nothing can          some rows of B above        B reads alone up to      not read yet; sinks
//	    appear at            were left out               the head once it         whose cursor is here
//	    or below             deliberately                has room                 read together
//
// A blocked key has a position of its own, resumeFrom: its rows above that position were dropped, and are read when the key is
// unblocked.
//
// One of these statements must hold for each pending row of a sink at or below the sink's cursor:
//
//   - The row is in memory.
//   - It is above resumeFrom of its key.
//   - It is above the gap, and was left out on purpose: it is paused, or its blocked key was forgotten.
//   - It waits for a message with the same id.
//   - It has appeared late, and the store hasn't reported it yet.
//
// So the mark, from which the next holder of the lane must read, is the lowest of the cursor, the gap, resumeFrom of all keys, and
// the id before the lowest pending row in memory. The mark is never above the safe id. Deferred rows don't affect the mark, since
// reads find them by the times at which they are due.

// reader is the part of a lane that belongs to one sink.
type reader struct {
	cursor    int64 // all rows up to this id have been offered to the reader
	gap       int64 // some rows above this id were left out, because they are paused or their blocked key was forgotten; `none` if no row was left out
	routeless bool  // the reader gets the rows without a route, for which there is never room

	known map[int64]*item // the rows in memory, by id
	keys  map[string]*key
}

// none is the value of a position that is not set.
const none = int64(-1)

// newReader returns a reader that begins above this id.
func newReader(cursor int64) reader {
	return reader{cursor: cursor, gap: none, known: map[int64]*item{}, keys: map[string]*key{}}
}

// meeting describes the circumstances in which a row is offered to a reader.
type meeting struct {
	room     int  // the sink's room for a row of this kind
	paused   bool // the row is paused
	leaving  bool // the lane is being given up
	keyKnown bool // it is known whether the row's key is blocked
}

// answer is what a reader does with a row.
type answer int

const (
	rowTaken   answer = iota // the row is taken into memory
	rowKnown                 // the row is ignored: it is in memory already
	rowDoubled               // the row waits: another message with the same id is in memory
	rowBeyond                // the row is read later: the cursor is below it
	rowLater                 // the row is settled as scheduled: it is not due yet
	rowPaused                // the row is left out until the pause ends
	rowUnasked               // undecided: it is unknown whether the row's key is blocked
	rowBehind                // the row is read when its key is unblocked, or with the deferred rows
	rowStopped               // the reader stops before the row: there is no room, or the lane is being given up
)

// offer decides what the reader does with a row. If a pending row must be read again, the reader records from which position. The
// rows of a page must be offered in the order of their ids, after advance has moved the cursor past them.
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
	case row.Later && !row.Deferred: // even if its key is blocked
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

// stopBefore moves the cursor to just before the row. It ignores a deferred row, because reads find deferred rows by the times at
// which they are due.
func (r *reader) stopBefore(row *storage.Row) {
	if !row.Deferred {
		r.rewind(row.ID - 1)
	}
}

// rewind moves the cursor back to the id `place`, so that all rows above that id are offered again. It never moves the cursor
// up. The reader ignores rows that are already in memory.
func (r *reader) rewind(place int64) {
	r.cursor = min(r.cursor, place)
	if r.gap >= r.cursor {
		r.gap = none
	}
}

// leaveOut records that a row at or below the cursor was left out.
func (r *reader) leaveOut(id int64) {
	if id <= r.cursor {
		r.gap = lowestSet(r.gap, id-1)
	}
}

// closeGap rewinds the reader, so that the rows that were left out are offered again.
func (r *reader) closeGap() {
	if r.gap != none {
		r.rewind(r.gap)
	}
}

// low returns the position above which the lane's next holder must read for this sink. Deferred rows are found without a
// position, by the times at which they are due. So a deferred row lowers this position only if a pending row with the same id
// waits for it.
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

// takes reports whether the key allows the row into memory. While the key is blocked, it allows only the deferred row that blocks
// it. If the database must be asked again after the key was unblocked (fromDatabase), the key allows no row until the database
// has answered. In both cases the key records that a pending row must be read later (dropAt). A pending row above resumeFrom
// isn't allowed either, because it would overtake dropped rows.
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

// dropAt records that the row with this id was dropped and must be read again.
func (k *key) dropAt(id int64) {
	if !k.dropped || id-1 < k.resumeFrom {
		k.resumeFrom = id - 1
	}
	k.dropped = true
}

// places is a copy of a reader's positions, for a scan.
type places struct {
	cursor, gap int64
	resumeFrom  map[string]int64 // by key, for keys with dropped rows
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

// willMeet reports whether the row with this id and key will be offered to the reader later.
func (p *places) willMeet(id int64, key string) bool {
	from, dropped := p.resumeFrom[key]
	return id > p.cursor || dropped && id > from
}

// mayLeaveOut reports whether the reader may have left out the row with this id. Such a row is offered again later.
func (p *places) mayLeaveOut(id int64) bool { return p.gap != none && id > p.gap }

// readers holds the readers of a lane, indexed by queue.
type readers []reader

// head returns the position from which new rows are read: the highest cursor of any sink. The reader that gets the rows without a
// route doesn't count, since it never has room. Its cursor may be above the head.
func (rs readers) head() (head int64) {
	for i := range rs {
		if !rs[i].routeless {
			head = max(head, rs[i].cursor)
		}
	}
	return head
}

// isBehind reports whether the queue must still read rows below the head.
func (rs readers) isBehind(queue int) bool { return rs[queue].cursor < rs.head() }

// advance moves cursors to the id `through`, where a page ended. It moves only cursors at or above the id `after`, where the
// page began, and only the cursors of queues for which the page was read. The function takesPart reports whether the page was
// read for a queue; nil means that it was read for all queues. The caller then offers the rows. A reader that can't take a row
// moves its cursor back.
func (rs readers) advance(after, through int64, takesPart func(queue int) bool) {
	for i := range rs {
		if rs[i].cursor >= after && (takesPart == nil || takesPart(i)) {
			rs[i].cursor = max(rs[i].cursor, through)
		}
	}
}

// rewind rewinds all readers.
func (rs readers) rewind(place int64) {
	for i := range rs {
		rs[i].rewind(place)
	}
}

// marks returns the positions from which the lane's next holder must read. The result `main` is the position for all sinks
// that have read up to the head; the map `behind` contains the positions of the other sinks, by queue. No position is above the id
// `final`, because late rows may still appear above it.
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

// lowestSet returns the lower of two positions, ignoring negative ones.
func lowestSet(a, b int64) int64 {
	if a < 0 || (b >= 0 && b < a) {
		return max(b, none)
	}
	return a
}
