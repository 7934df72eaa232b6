package relay

import (
	"cmp"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// polling decides when new rows are read.
type polling struct {
	under      int           // how many reads are in progress. When claiming by lanes: at most 1, or 2 while a full page is merged; by rows: at most one per claimer
	fresh      bool          // there may be new rows, so read now
	polled     bool          // the only reason for the next read is that the poll interval has passed
	unasked    bool          // the only reason for the last read was that the poll interval had passed
	pace       time.Duration // the current poll interval, at most Options.Poll
	began      time.Time     // when the last read began
	at         time.Time     // when the next read begins unless something requests an earlier one
	dueAt      time.Time     // used only when claiming by lanes: when deferred rows are read next
	pauseUntil time.Time     // after a failed read: when reading resumes
	rowBytes   int           // the estimated average size of a row in bytes

	empty int // how many consecutive reads found nothing; used in a drain
}

// quickPoll is the poll interval while polls find rows. Each empty poll lengthens the interval by a sixteenth. So after a time t
// without messages, the interval is about t/16 (at least quickPoll, at most Options.Poll), and the number of polls during t grows
// only with the logarithm of t.
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

// dueRows decides when deferred rows are read. The relay reads them in passes, each over the rows that are due.
type dueRows struct {
	cursor storage.DueCursor // where the next read begins

	// All due rows up to the cursor pausedTo are paused, so passes begin after it. Once a second, a read that begins at the
	// cursor `again` searches for new rows among the paused ones.
	pausedTo storage.DueCursor
	again    storage.DueCursor
	againAt  time.Time
	next     time.Time // when the next known deferred row becomes due
	none     bool      // the last read found no row to send, and probably no more rows are due
}

// restart makes the next pass begin with the first deferred row.
func (d *dueRows) restart() {
	d.cursor, d.pausedTo, d.again = storage.DueCursor{}, storage.DueCursor{}, storage.DueCursor{}
}

const (
	// readLimit is the maximum number of rows in one read.
	readLimit = 2000

	// readBytes is the maximum number of payload bytes in one read, unless a single row has more.
	readBytes = 8 << 20
)
