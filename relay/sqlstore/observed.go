package sqlstore

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// observed tells where rows can still appear in a database that shows no
// snapshots: MySQL, for one. Ids are given out in order there, too, but a writer
// has its transaction's number only a moment after its id. Now and then we
// observe which transactions are open; see [backend.TransactionLister].
//
// An observation takes a number X of its own. Let m be the highest id that we
// knew to have been given out when the observation began that was [grace]
// before this one, a second ago at least. Whoever got m, or a lower id, had its
// number before X was given out: the moment in between was over long ago. So
// (X, m) is a checkpoint, as in [snapshots]: a transaction with a higher number
// has higher ids only. And no row can appear any more at or below
//
//	floor(the lowest number that is open)
//
// That the moment is counted in observations, and not by a clock alone, is for a
// server that stands still as a whole: it makes none meanwhile.
//
// What a read shows that the read before didn't, was committed since that one
// began. So it lies above what was known to be final before that one began,
// which is what its page said; this is what the next page tells as LateAfter.
// The caller looks there again, after each page: at what was given out in the
// last second or so, and at all that was given out since a transaction began
// that is still open.
//
// Where that has become much, another observation comes after the read: of the
// transactions that were open before the last read, those that are open even now
// have shown nothing to this one.
type observed struct {
	server string // that all this is about; empty before the first answer
	seen   int64  // the highest id that is known to have been given out
	given  int64  // the same, and as high as ever on this server
	final  int64  // no row can appear any more at or below this id

	number  uint64 // of the last observation
	latest  *list  // what the last observation showed
	told    known  // when the read before began; its id is [untold] before the first
	reading known  // when the read began that is under way

	earlier     []int64   // what seen was when the last observations began, grace of them
	noted       time.Time // when the last of them was
	old         int64     // what seen was when the observation began that was grace before it
	checkpoints checkpoints
	next        time.Time // not before this the next observation
	vain        int       // so many observations in a row have said nothing
	silent      time.Time // since when they do, or since an operator was told
	doubted     bool      // this may be another server: an observation is to show it
	warning     string    // what an operator is to be told
	listed      time.Time // when the last observation was begun

	trail *trail // instead of observations, where none can be made
}

// known is what was known when a read began.
type known struct {
	final int64
	list  *list
}

// list is who was open. All others have higher ids than id, or had ended.
type list struct {
	id   int64
	open []uint64 // ascending
	held []uint64 // those of them that had shown nothing, ascending
	all  bool     // they are all, and not the lowest alone
}

const (
	untold = -1

	// grace is by how many observations an id has to be older than the one that
	// concludes from it; see [backend.TransactionLister] on the second.
	grace        = 4
	observeEvery = 250 * time.Millisecond

	// observeAgain is the pause before an observation that follows upon another.
	observeAgain = 120 * time.Millisecond

	// muchToSee is how many ids are worth an observation of their own. To look
	// through as many takes some 20 ms, if their rows were deleted and not purged.
	muchToSee = 100_000

	// vainlyEvery is the longest pause after observations that said nothing:
	// they may be in each other's way.
	vainlyEvery = 2 * time.Second

	// silence is how long observations say nothing before an operator is told,
	// and then is told again.
	silence = 30 * time.Second
)

// newObserved begins with the highest id that was given out before.
func newObserved(given int64, now time.Time) *observed {
	return &observed{seen: given, given: given, told: known{final: untold}, earlier: []int64{given}, noted: now, next: now.Add(observeEvery)}
}

// learn notes an id that was given out.
func (o *observed) learn(id int64) { o.seen, o.given = max(o.seen, id), max(o.given, id) }

// due says whether to observe now: not while it couldn't tell anything new.
func (o *observed) due(now time.Time) bool {
	return (o.seen > o.final || o.doubted) && !now.Before(o.next)
}

// doubt notes that a read failed: the server may have been restarted meanwhile,
// and restored.
func (o *observed) doubt() { o.doubted = true }

// begin begins an observation, and returns the id that its number is going to
// be a checkpoint for; 0 if it is too early to say. Those that follow closely upon
// each other count as one.
func (o *observed) begin(now time.Time) (id int64) {
	o.next, o.listed = now.Add(observeEvery), now
	if now.Sub(o.noted) < observeEvery {
		return o.old
	}
	if len(o.earlier) == grace {
		o.old = o.earlier[0]
		o.earlier = slices.Delete(o.earlier, 0, 1)
	}
	o.earlier, o.noted = append(o.earlier, o.seen), now
	return o.old
}

// end takes in what was observed, with what begin had returned.
func (o *observed) end(id int64, saw backend.OpenList, now time.Time) {
	if o.elsewhere(saw.Server) || saw.Number != 0 && saw.Number < o.number {
		o.restart(saw.Server)
		return
	}
	if saw.Number == 0 {
		o.inVain(now)
		o.next = now.Add(min(observeEvery<<min(o.vain-1, 8), vainlyEvery)/2 + rand.N(observeEvery))
		return
	}
	o.vain, o.doubted, o.number = 0, false, saw.Number
	o.checkpoints.add(saw.Number, id)
	slices.Sort(saw.Open)
	open := slices.Sorted(slices.Values(slices.Concat(saw.Open, saw.Ending)))
	o.latest = &list{id, open, saw.Open, saw.All}
	lowest := saw.Number + 1
	if len(open) > 0 {
		lowest = min(lowest, open[0])
	}
	o.final = max(o.final, o.checkpoints.floor(lowest))
	o.checkpoints.prune(lowest)
}

// inVain counts an observation that said nothing.
func (o *observed) inVain(now time.Time) {
	if o.vain++; o.vain == 1 {
		o.silent = now
	}
	if now.Sub(o.silent) >= silence {
		o.silent, o.warning = now, silenced.String()
	}
}

var silenced = Finding{
	Name: "open transactions",
	Detail: "the server's list of them has said nothing for a while, as others read it all the time, as it is too long," +
		" or, on MySQL 9, as some are in statements with bytes that are no text;" +
		" meanwhile it isn't known which ids are final, and each read looks through more and more",
	Hint: "look for a monitor that reads the list more than a few times a second, for thousands of open transactions," +
		" or for producers that write bytes into the text of their statements, rather than prepare these (interpolateParams of go-sql-driver)",
}

// warned returns what an operator is to be told, once.
func (o *observed) warned() (warning string) {
	warning, o.warning = o.warning, ""
	return warning
}

// elsewhere says that this is another server than before; none is none.
func (o *observed) elsewhere(server string) bool {
	if o.server == "" {
		o.server = server
	}
	return server != "" && o.server != server
}

// restart forgets everything. What the highest id is has to be asked anew.
func (o *observed) restart(server string) {
	*o = observed{server: server, trail: o.trail.emptied()}
}

// distrust forgets all that is concluded from: what is given out is learned from the
// rows that are read from now on.
func (o *observed) distrust(now time.Time) {
	given := o.given
	o.restart(o.server)
	o.found(0, now)
	o.given = given
}

// lost says that the highest id isn't known any more.
func (o *observed) lost() bool { return len(o.earlier) == 0 }

// found begins anew with the highest id that was given out.
func (o *observed) found(given int64, now time.Time) {
	o.learn(given)
	o.earlier, o.noted = []int64{o.seen}, now
}

// begins notes that a read begins.
func (o *observed) begins(now time.Time) {
	if o.trail != nil {
		o.final = max(o.final, o.trail.passed(o.seen, now))
	}
	o.reading = known{o.final, o.latest}
}

// again says that it pays to observe once more after the read that was begun,
// and after which pause.
func (o *observed) again(now time.Time) (pause time.Duration, pays bool) {
	if o.trail != nil || o.told.list == nil || !o.told.list.all || o.told.list.id-o.told.final < muchToSee {
		return 0, false
	}
	return o.listed.Add(observeAgain).Sub(now), true
}

// page says what the page of a read promises that has returned without an error.
// Afterwards, if it isn't nil, is what was observed since.
func (o *observed) page(server string, afterwards *list) (lateAfter, final int64) {
	if o.elsewhere(server) {
		o.restart(server)
	}
	lateAfter = max(o.told.final, o.appeared(afterwards))
	o.told = o.reading
	return lateAfter, o.told.final
}

// appeared is below all that can have been committed between the last two reads,
// as far as lists tell.
func (o *observed) appeared(afterwards *list) int64 {
	if afterwards == nil || o.told.list == nil || !o.told.list.all {
		return untold
	}
	lowest := o.told.list.id
	for _, number := range o.told.list.open {
		if _, still := slices.BinarySearch(afterwards.held, number); !still {
			lowest = min(lowest, o.checkpoints.floor(number))
		}
	}
	return lowest
}
