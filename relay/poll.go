package relay

import (
	"cmp"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// polling decides when new rows are read.
type polling struct {
	under      int           // reads in progress: by lanes at most 1, or 2 while a full page is merged; by rows at most one per claimer
	fresh      bool          // there may be new rows, so read now
	polled     bool          // the next read has no other reason than the poll interval
	unasked    bool          // the last read had no other reason than the poll interval
	pace       time.Duration // the current poll interval, at most Options.Poll
	began      time.Time     // when the last read began
	at         time.Time     // when the next read begins if nothing asks for an earlier one
	dueAt      time.Time     // by lanes: when deferred rows are read next
	pauseUntil time.Time     // after a failed read: when reading resumes
	rowBytes   int           // the average size of a row, estimated

	empty int // consecutive reads that found nothing, for a drain
}

// quickPoll is the poll interval while polls find rows. Each empty poll makes the interval longer by a sixteenth. So a message
// that is written after a pause waits for little more than a sixteenth of the pause, and a pause costs few polls.
const quickPoll = 7 * time.Millisecond

// begin records that a read begins, and schedules the next one.
func (p *polling) begin(now time.Time, longest time.Duration) {
	p.unasked, p.fresh, p.polled = p.polled, false, false
	p.pace = min(cmp.Or(p.pace, longest), longest)
	p.began, p.at = now, now.Add(p.pace)
}

// count counts consecutive empty reads, and adapts the poll interval.
func (p *polling) count(empty bool) {
	if empty {
		p.empty++
		p.pace += p.pace / 16
		return
	}
	p.empty = 0
	if p.unasked {
		p.pace = min(p.pace, quickPoll)
		p.at = earliest(p.at, p.began.Add(p.pace))
	}
}

// dueRows decides when deferred rows are read. They are read in passes over the rows that are due.
type dueRows struct {
	cursor storage.DueCursor // where the next read begins

	// Up to pausedTo all rows are paused, so passes begin behind it. Rows that appear among these are found by one page a second,
	// which begins at again.
	pausedTo storage.DueCursor
	again    storage.DueCursor
	againAt  time.Time
	next     time.Time // when the next known deferred row becomes due
	none     bool      // the last read found nothing to send, and probably nothing more is due
}

// restart makes the next pass begin with the first deferred row.
func (d *dueRows) restart() {
	d.cursor, d.pausedTo, d.again = storage.DueCursor{}, storage.DueCursor{}, storage.DueCursor{}
}

const (
	// readLimit is the most rows of one read.
	readLimit = 2000

	// readBytes is the most payload of one read in bytes, except for a single larger row.
	readBytes = 8 << 20
)
