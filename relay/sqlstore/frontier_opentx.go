package sqlstore

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// openTx is the frontier of a database that shows no snapshots: MySQL, for one. Ids are
// given out in order there, too, but a writer has its transaction's number only a moment
// after its id. Now and then we list which transactions are open; see
// [backend.TransactionLister].
//
// A list takes a number X of its own. Let m be the highest id that we knew to have been
// given out when the list began that was [grace] before this one, a second ago at least.
// Whoever got m, or a lower id, had its number before X was given out: the moment in
// between was over long ago. So (X, m) is a checkpoint, as in [snapshots]: a transaction
// with a higher number has higher ids only. And no row can appear any more at or below
//
//	floor(the lowest number that is open)
//
// The moment is counted in lists, and not by a clock alone, because a server may stand
// still as a whole: it makes no lists meanwhile.
//
// What a read shows, and the read before it didn't, was committed after that earlier read
// began. So it lies above the SafeID that the earlier read's page told. The later page tells
// that id as LateAfter. The caller looks there again, after each page: at what was given out
// in the last second or so, and at all that was given out since a transaction began that is
// still open.
//
// If that has become much, another list is made after the read. A transaction that was open
// before the previous read, and is still open in this list, has shown nothing to the read:
// its ids needn't be looked at again.
type openTx struct {
	db openTxLister

	server string // that all this is about; empty before the first answer
	seen   int64  // the highest id that is known to have been given out
	lastID int64  // the same, but reset doesn't lower it
	safeID int64  // no row can appear any more at or below this id

	number  uint64 // of the last list
	latest  *list  // what it showed
	told    known  // when the read before began; its id is [untold] before the first
	reading known  // when the read began that is under way

	earlier     []int64   // what seen was when the last lists began, grace of them
	noted       time.Time // when the last of them was
	old         int64     // what seen was when the list began that was grace before it
	checkpoints checkpoints
	next        time.Time // not before this the next list
	vain        int       // number of consecutive lists that were unusable
	silent      time.Time // since when they do, or since an operator was told
	doubted     bool      // this may be another server: a list is to show it
	warning     string    // the warning for operators
	listed      time.Time // when the last list was begun

	bound *timeBound // instead of lists, where none can be made
}

// openTxLister is the database of an [openTx].
type openTxLister struct {
	backend backend.TransactionLister
	lastID  func(context.Context) (int64, error)
	dialect dialect.Dialect // for its errors
	table   dialect.Table
	longest time.Duration // maximum time that a transaction stays open, if transactions cannot be listed
}

// known is what was known when a read began.
type known struct {
	safeID int64
	list   *list
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

	// grace is by how many lists an id has to be older than the one that
	// concludes from it; see [backend.TransactionLister] on the second.
	grace     = 4
	listEvery = 250 * time.Millisecond

	// listAgain is the pause before a list that follows upon another.
	listAgain = 120 * time.Millisecond

	// muchToSee is how many ids are worth a list of their own. To look through as many
	// takes some 20 ms, if their rows were deleted and not purged.
	muchToSee = 100_000

	// vainlyEvery bounds the pause after lists that said nothing, as the lists of several relays may be in each
	// other's way: the pause is at most half of it, and a random part of listEvery.
	vainlyEvery = 2 * time.Second

	// silence is how long lists say nothing before an operator is told, and then is
	// told again.
	silence = 30 * time.Second

	// A check makes a few lists, for others may make theirs at the same time.
	checkTries = 10
	checkPause = 400 * time.Millisecond // on average half of it
)

// newOpenTx begins with the highest id that was given out before.
func newOpenTx(lastID int64, now time.Time) *openTx {
	return &openTx{seen: lastID, lastID: lastID, told: known{safeID: untold}, earlier: []int64{lastID}, noted: now, next: now.Add(listEvery)}
}

// open makes the first list, which shows whether there can be any: where the user may
// not see transactions, which is worth a finding, or where lists tell nothing, ids are
// final after a time.
func (o *openTx) open(ctx context.Context, unordered bool, findings *[]Finding) error {
	if unordered {
		o.bound = &timeBound{longest: o.db.longest}
		return nil
	}
	_, err := o.db.backend.ListOpen(ctx, rand.Text())
	switch {
	case o.db.hides(err):
		o.bound = &timeBound{longest: o.db.longest}
		*findings = append(*findings, o.db.unseen(err))
	case !o.db.dialect.Busy(err): // else the next one may tell
		return err
	}
	return nil
}

// hides says that the user may not see transactions. What lists them is missing
// then on some databases.
func (db *openTxLister) hides(err error) bool {
	return db.dialect.Denied(err) || db.dialect.Missing(err)
}

func (db *openTxLister) unseen(err error) Finding {
	return Finding{
		Name:   "open transactions",
		Detail: fmt.Sprintf("this user may not list open transactions (%v): rows of a transaction that stays open for more than %v may be delivered out of order", err, db.longest),
		Hint:   "have an administrator run GRANT " + db.backend.Grant() + " TO this user, or set longest_transaction to the duration of your longest transaction",
	}
}

// prepare makes a list, if ids may be final further than is known, and none was made just
// now. There is none of an idle table.
func (o *openTx) prepare(ctx context.Context) error {
	if o.lost() {
		lastID, err := o.db.lastID(ctx)
		if err != nil {
			return err
		}
		o.found(lastID, time.Now())
	}
	if o.bound == nil && o.due(time.Now()) {
		if err := o.list(ctx); err != nil {
			return err
		}
	}
	o.begins(time.Now())
	return nil
}

// guarantee: another list is made first, if that is worth it.
func (o *openTx) guarantee(ctx context.Context, first backend.FirstLine, _ token, page *storage.Page) error {
	for i := range page.Rows {
		o.learn(page.Rows[i].ID)
	}
	var afterwards *list
	if pause, pays := o.again(time.Now()); pays {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		before := o.latest
		if err := o.list(ctx); err != nil {
			return err
		}
		if o.latest != before {
			afterwards = o.latest
		}
	}
	page.Epoch = first.Server
	page.LateAfter, page.SafeID = o.page(first.Server, afterwards)
	page.LastID = o.lastID
	page.Warning, o.warning = o.warning, ""
	return nil
}

// list makes a list.
func (o *openTx) list(ctx context.Context) error {
	id := o.begin(time.Now())
	saw, err := o.db.backend.ListOpen(ctx, rand.Text())
	switch {
	case o.db.hides(err):
		o.bound = &timeBound{longest: o.db.longest}
		o.warning = o.db.unseen(err).String()
	case err != nil && !o.db.dialect.Busy(err):
		return fmt.Errorf("list the open transactions for table %s: %w", o.db.table, err)
	default:
		o.end(id, saw, time.Now())
	}
	return nil
}

// tells says, for a check, whether lists say something. What failed is told by what
// else is checked.
func (db *openTxLister) tells(ctx context.Context) bool {
	for range checkTries {
		saw, err := db.backend.ListOpen(ctx, rand.Text())
		if saw.Number != 0 || err != nil && !db.dialect.Busy(err) {
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-time.After(mathrand.N(checkPause)):
		}
	}
	return false
}

// Our own transactions have no numbers that would tell anything.
func (o *openTx) before() token               { return token{} }
func (o *openTx) wrote(uint64, token)         {}
func (o *openTx) idle(backend.FirstLine) bool { return false }

// learn notes an id that was given out.
func (o *openTx) learn(id int64) { o.seen, o.lastID = max(o.seen, id), max(o.lastID, id) }

// failed notes that a read failed: the server may have been restarted meanwhile,
// and restored.
func (o *openTx) failed() { o.doubted = true }

// due says whether to make a list now: not while it couldn't tell anything new.
func (o *openTx) due(now time.Time) bool {
	return (o.seen > o.safeID || o.doubted) && !now.Before(o.next)
}

// begin begins a list, and returns the id that its number is going to be a
// checkpoint for; 0 if it is too early to say. Those that follow closely upon
// each other count as one.
func (o *openTx) begin(now time.Time) (id int64) {
	o.next, o.listed = now.Add(listEvery), now
	if now.Sub(o.noted) < listEvery {
		return o.old
	}
	if len(o.earlier) == grace {
		o.old = o.earlier[0]
		o.earlier = slices.Delete(o.earlier, 0, 1)
	}
	o.earlier, o.noted = append(o.earlier, o.seen), now
	return o.old
}

// end takes in what was listed, with what begin had returned.
func (o *openTx) end(id int64, saw backend.OpenList, now time.Time) {
	if o.serverChanged(saw.Server) || saw.Number != 0 && saw.Number < o.number {
		o.restart(saw.Server)
		return
	}
	if saw.Number == 0 { // it said nothing
		if o.vain++; o.vain == 1 {
			o.silent = now
		}
		if now.Sub(o.silent) >= silence {
			o.silent, o.warning = now, silenced.String()
		}
		o.next = now.Add(min(listEvery<<min(o.vain-1, 8), vainlyEvery)/2 + mathrand.N(listEvery))
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
	o.safeID = max(o.safeID, o.checkpoints.pass(lowest))
}

var silenced = Finding{
	Name: "open transactions",
	Detail: "the server's list of open transactions has been unusable for a while: other clients read it constantly, it is too long," +
		" or some statements in it contain an emoji or bytes that are not text;" +
		" until it is usable again, the store does not know which ids are final, and each read examines more rows",
	Hint: "look for a monitor that reads the list more than a few times a second, for thousands of open transactions," +
		" or for producers that write values into the text of their statements, rather than prepare these (interpolateParams of go-sql-driver)",
}

// serverChanged says that this is another server than before. It remembers the first server that it is told; an empty name
// says nothing.
func (o *openTx) serverChanged(server string) bool {
	if o.server == "" {
		o.server = server
	}
	return server != "" && o.server != server
}

// restart forgets everything. What the highest id is has to be asked anew.
func (o *openTx) restart(server string) {
	bound := o.bound
	if bound != nil {
		bound = &timeBound{longest: bound.longest}
	}
	*o = openTx{db: o.db, server: server, bound: bound}
}

// lost says that the highest id isn't known any more.
func (o *openTx) lost() bool { return len(o.earlier) == 0 }

// found begins anew with the highest id that was given out.
func (o *openTx) found(lastID int64, now time.Time) {
	o.learn(lastID)
	o.earlier, o.noted = []int64{o.seen}, now
}

func (o *openTx) start(server string, lastID int64) {
	o.restart(server)
	o.found(lastID, time.Now())
}

// reset: what is given out is learned from the rows that are read from now on.
func (o *openTx) reset() {
	lastID := o.lastID
	o.start(o.server, 0)
	o.lastID = lastID
}

// begins notes that a read begins.
func (o *openTx) begins(now time.Time) {
	if o.bound != nil {
		o.safeID = max(o.safeID, o.bound.passed(o.seen, now))
	}
	o.reading = known{o.safeID, o.latest}
}

// again says that it pays to make another list after the read that was begun,
// and after which pause.
func (o *openTx) again(now time.Time) (pause time.Duration, pays bool) {
	if o.bound != nil || o.told.list == nil || !o.told.list.all || o.told.list.id-o.told.safeID < muchToSee {
		return 0, false
	}
	return o.listed.Add(listAgain).Sub(now), true
}

// page says what the page of a read promises, once the read has returned without an error. If afterwards isn't nil, it is
// a list that was made after the read. A transaction that was open when the previous read began, and in afterwards is
// still open and has shown nothing, has not appeared.
func (o *openTx) page(server string, afterwards *list) (lateAfter, safeID int64) {
	if o.serverChanged(server) {
		o.restart(server)
	}
	lateAfter = o.told.safeID
	if before := o.told.list; afterwards != nil && before != nil && before.all {
		lowest := before.id
		for _, number := range before.open {
			if _, still := slices.BinarySearch(afterwards.held, number); !still {
				floor, _ := o.checkpoints.floor(number)
				lowest = min(lowest, floor)
			}
		}
		lateAfter = max(lateAfter, lowest)
	}
	o.told = o.reading
	return lateAfter, o.told.safeID
}

// timeBound is how far ids are final where nobody can tell which transactions are
// open: those that were given out so long ago that, so we are told, none of that
// time is open any more. A row of a longer transaction is found by a sweep, but
// the order isn't kept.
type timeBound struct {
	longest time.Duration // that a transaction stays open
	steps   []step
}

// step: at that time, no higher id was known to have been given out.
type step struct {
	at time.Time
	id int64
}

// boundSteps is about how many steps there are in the longest transaction.
const boundSteps = 64

// passed notes how far ids are given out now, and says how far they are final.
// The time is the monotonic clock's.
func (t *timeBound) passed(lastID int64, now time.Time) (safeID int64) {
	old := 0
	for old < len(t.steps) && now.Sub(t.steps[old].at) >= t.longest {
		safeID = t.steps[old].id
		old++
	}
	t.steps = slices.Delete(t.steps, 0, old)
	if n := len(t.steps); n == 0 || now.Sub(t.steps[n-1].at) >= t.longest/boundSteps && t.steps[n-1].id < lastID {
		t.steps = append(t.steps, step{now, lastID})
	}
	return safeID
}
