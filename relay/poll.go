package relay

import (
	"cmp"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// polling is when the table is read for what is new.
type polling struct {
	under      int           // reads under way: by lanes 2 while a full page is taken in, else 1 at most; by rows as many as there are claimers
	fresh      bool          // there may be new rows: look
	polled     bool          // the poll's time is the only reason for the next look
	unasked    bool          // the poll's time was the only reason for the last look
	pace       time.Duration // until the next look, at most Options.Poll
	began      time.Time     // of the last look
	at         time.Time     // of the next one, if nothing asks for one before
	dueAt      time.Time     // by lanes: of the next look at the deferred rows
	pauseUntil time.Time
	rowBytes   int // of a row, about

	empty int // looks in a row that found nothing, for a drain
}

// quickPoll is the pace of looks that nobody asked for, while they find something. Each that finds
// nothing makes the next one later, by a sixteenth: so a message that comes after a pause waits for little
// more than a sixteenth of that pause, and a pause costs few looks.
const quickPoll = 7 * time.Millisecond

// begin notes that a look begins, and when the next one is due.
func (p *polling) begin(now time.Time, longest time.Duration) {
	p.unasked, p.fresh, p.polled = p.polled, false, false
	p.pace = min(cmp.Or(p.pace, longest), longest)
	p.began, p.at = now, now.Add(p.pace)
}

// count counts the looks in a row that found nothing new, and says how soon the next one is.
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

// dueRows is when deferred rows are read, in passes over those whose time has come.
type dueRows struct {
	cursor storage.DueCursor // where the next read begins

	// All rows up to here are paused: a pass begins behind them. What appears among them is found by one page a second,
	// which begins at again.
	pausedTo storage.DueCursor
	again    storage.DueCursor
	againAt  time.Time
	next     time.Time // when the next deferred row that is known of becomes due
	none     bool      // the last read took nothing into memory, and probably nothing more is due
}

// restart has the next pass begin with the first deferred row.
func (d *dueRows) restart() {
	d.cursor, d.pausedTo, d.again = storage.DueCursor{}, storage.DueCursor{}, storage.DueCursor{}
}

const (
	// readLimit bounds the rows of one read.
	readLimit = 2000

	// readBytes bounds the payload of one read; a single larger row is read.
	readBytes = 8 << 20
)
