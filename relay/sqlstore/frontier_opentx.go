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

// openTx is the frontier of databases that show no snapshots, such as MySQL. These databases assign ids in order, but a writer may get its
// transaction's number up to a second after its id. The store periodically lists the open transactions; see [backend.TransactionLister].
//
// Each list has a number X, the highest transaction number that had been assigned shortly before the server made the list. Let m be the
// highest assigned id that the store knew when an earlier list began, [grace] lists and so at least a second before this one. A transaction
// that got m or a lower id got its number within a second, so its number is at most X. So (X, m) is a checkpoint, as in [snapshots]: a
// transaction with a number above X has only ids above m. Therefore no row can appear any more at or below
//
//	floor(the lowest open number)
//
// The store counts lists to measure this second, because a clock alone could mislead it: while the whole machine is suspended, the clock
// may continue, but the server assigns no numbers and the store makes no lists.
//
// If a read shows a row that the previous read didn't show, the row was committed after the previous read began. So the row's id is above
// the SafeID of the previous page, and the current page reports this SafeID as its LateAfter. After each page, the caller scans the ids
// above LateAfter: ids that were assigned in about the last second, and all ids that were assigned since the beginning of the oldest
// transaction that is still open.
//
// If there are at least [muchToSee] such ids, the store makes another list after the read. Suppose that a transaction was open when the
// previous read began, and that the new list shows that its rows are still not visible. Then the current read has returned none of this
// transaction's rows, so the caller need not scan their ids.
type openTx struct {
	db openTxLister

	server string // the server that this state belongs to; empty before the server's first answer
	seen   int64  // the highest id that is known to be assigned
	lastID int64  // the highest id that is known to be assigned; unlike `seen`, it isn't lowered by the method `reset`
	safeID int64  // no row can appear at or below this id any more

	number  uint64 // the number of the last list
	latest  *list  // the last list
	told    known  // recorded when the previous read began; its safeID is [untold] before the first read, and 0 after a restart
	reading known  // recorded when the current read began

	earlier     []int64   // the values that the field `seen` had when the latest lists began, oldest first; at most `grace` values
	noted       time.Time // when the last value was appended to `earlier`
	old         int64     // the value that was last removed from `earlier`, recorded `grace` lists ago
	checkpoints checkpoints
	next        time.Time // the earliest time of the next list
	vain        int       // the number of consecutive lists that were unusable
	silent      time.Time // when lists became unusable, or when the last warning was given
	doubted     bool      // set by a failed read, because another server may answer now; the next list shows whether another server answers
	warning     string    // a warning for operators; the next read moves it to its page
	listed      time.Time // when the last list began

	bound *timeBound // determines safeID if lists are impossible; otherwise nil
}

// openTxLister queries the database for an [openTx].
type openTxLister struct {
	backend backend.TransactionLister
	lastID  func(context.Context) (int64, error)
	dialect dialect.Dialect // classifies errors
	table   dialect.Table
	longest time.Duration // how long a transaction may stay open, if transactions cannot be listed
}

// known has the safe id and the newest list of open transactions, as they were when a read began.
type known struct {
	safeID int64
	list   *list
}

// list has the numbers of the transactions that were open when the server made the list. Every other transaction had ended or gets only ids
// above the field `id`.
type list struct {
	id   int64
	open []uint64 // ascending
	held []uint64 // the open transactions whose rows were not visible yet, ascending
	all  bool     // whether the field `open` is complete; otherwise it has only the lowest number
}

const (
	untold = -1

	// The checkpoint of a list has the highest id that was known grace lists earlier, at least a second before (grace × listEvery). Within
	// this second, every transaction that got this id or a lower one also gets its number; see [backend.TransactionLister].
	grace     = 4
	listEvery = 250 * time.Millisecond

	// listAgain is the minimum time from the beginning of one list to the beginning of the next, if the next list is made
	// after a read.
	listAgain = 120 * time.Millisecond

	// muchToSee is the minimum number of ids to scan for which another list is worthwhile. Scanning this many ids takes about 20 ms
	// if their rows were deleted and the server has not purged the rows yet.
	muchToSee = 100_000

	// vainlyEvery limits the pause after an unusable list: the pause is at most half of vainlyEvery, plus a random time below listEvery.
	// The random time is needed because the lists of several relays can make each other unusable.
	vainlyEvery = 2 * time.Second

	// silence is the time for which lists must have been unusable before each warning.
	silence = 30 * time.Second

	// A check makes up to checkTries lists, because the lists of other relays may make some of them unusable.
	checkTries = 10
	checkPause = 400 * time.Millisecond // maximum of the random pause between these lists
)

// newOpenTx returns a frontier that knows only the highest assigned id.
func newOpenTx(lastID int64, now time.Time) *openTx {
	return &openTx{seen: lastID, lastID: lastID, told: known{safeID: untold}, earlier: []int64{lastID}, noted: now, next: now.Add(listEvery)}
}

// open decides how ids become final. An id is final if no row can appear at or below it any more. If unordered is true, ids become final
// after a set time; see [timeBound]. Otherwise open requests a list of the open transactions. If the user may not see them, open adds a
// finding, and ids become final after a set time, too.
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
	case !o.db.dialect.Busy(err): // if the database is busy, the next list may succeed
		return err
	}
	return nil
}

// hides reports whether the error means that the user may not see transactions. Some databases report a missing privilege as
// a missing view.
func (db *openTxLister) hides(err error) bool {
	return db.dialect.Denied(err) || db.dialect.Missing(err)
}

func (db *openTxLister) unseen(err error) Finding {
	return Finding{
		Name:   "open transactions",
		Detail: fmt.Sprintf("this user may not list open transactions (%v): rows of a transaction that stays open for more than %v may be delivered out of order", err, db.longest),
		Hint:   "have an administrator grant this privilege to the user: GRANT " + db.backend.Grant() + " TO …; or set longest_transaction to the duration of your longest transaction",
	}
}

// prepare makes a list of the open transactions if one is due. For an idle table it makes no list.
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

// guarantee first makes another list if this saves the caller a long scan; see [openTx.again].
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

// list lists the open transactions, and processes the result.
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

// tells reports, for a check, whether the server's list of open transactions is usable. It requests the list up to checkTries times. If
// a request fails for a reason other than a busy database, it returns true, because other checks report the error.
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

// An openTx doesn't use the numbers of the store's own transactions.
func (o *openTx) before() token               { return token{} }
func (o *openTx) wrote(uint64, token)         {}
func (o *openTx) idle(backend.FirstLine) bool { return false }

// learn records an assigned id.
func (o *openTx) learn(id int64) { o.seen, o.lastID = max(o.seen, id), max(o.lastID, id) }

// failed records that a read failed. The server may have been restarted or restored.
func (o *openTx) failed() { o.doubted = true }

// due reports whether to make a list now. No list is due while all known ids are final, unless a read has failed.
func (o *openTx) due(now time.Time) bool {
	return (o.seen > o.safeID || o.doubted) && !now.Before(o.next)
}

// begin records that a list begins. It returns the id for the list's checkpoint, or 0 if fewer than grace lists have begun. A list that
// begins less than listEvery after the last counted list isn't counted.
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

// end processes a list. Its first argument is the id that begin returned.
func (o *openTx) end(id int64, saw backend.OpenList, now time.Time) {
	if o.serverChanged(saw.Server) || saw.Number != 0 && saw.Number < o.number {
		o.restart(saw.Server)
		return
	}
	if saw.Number == 0 { // the list is unusable
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
	Name: "transaction list",
	Detail: "the server's list of open transactions is unusable: other clients read it constantly, it is too long," +
		" or some statements in it contain an emoji or bytes that are not text;" +
		" until it is usable again, each read examines more rows, because the relay does not know which transactions are open",
	Hint: "look for a monitor that reads the list several times a second; for thousands of open transactions;" +
		" or for producers that write values into the text of their statements and don't prepare the statements (interpolateParams of go-sql-driver)",
}

// serverChanged reports whether the server's name differs from the name in the previous answers. It stores the first name for later
// comparisons. An empty name counts as unchanged.
func (o *openTx) serverChanged(server string) bool {
	if o.server == "" {
		o.server = server
	}
	return server != "" && o.server != server
}

// restart discards the state. The highest assigned id is then unknown until a call of `found`.
func (o *openTx) restart(server string) {
	bound := o.bound
	if bound != nil {
		bound = &timeBound{longest: bound.longest}
	}
	*o = openTx{db: o.db, server: server, bound: bound}
}

// lost reports whether the highest assigned id is unknown because of a restart.
func (o *openTx) lost() bool { return len(o.earlier) == 0 }

// found sets the highest assigned id after a restart of the frontier.
func (o *openTx) found(lastID int64, now time.Time) {
	o.learn(lastID)
	o.earlier, o.noted = []int64{o.seen}, now
}

func (o *openTx) start(server string, lastID int64) {
	o.restart(server)
	o.found(lastID, time.Now())
}

// reset makes the frontier learn the assigned ids again, from the rows that are read from now on.
func (o *openTx) reset() {
	lastID := o.lastID
	o.start(o.server, 0)
	o.lastID = lastID
}

// begins must be called when a read begins. It records the safe id and the latest list.
func (o *openTx) begins(now time.Time) {
	if o.bound != nil {
		o.safeID = max(o.safeID, o.bound.passed(o.seen, now))
	}
	o.reading = known{o.safeID, o.latest}
}

// again reports whether another list after the current read saves more time than it takes, and returns the pause before the list.
func (o *openTx) again(now time.Time) (pause time.Duration, pays bool) {
	if o.bound != nil || o.told.list == nil || !o.told.list.all || o.told.list.id-o.told.safeID < muchToSee {
		return 0, false
	}
	return o.listed.Add(listAgain).Sub(now), true
}

// page returns the promises of a page, after a successful read. The argument `afterwards` is nil or a list that was made after the read.
// If this list still reports the rows of a transaction as not visible, the read has returned none of them.
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

// timeBound decides which ids are final if open transactions can't be listed: an id is final when the configured maximum duration
// of a transaction has passed since the id was assigned. If a transaction takes longer, a relay finds its rows only in a later search
// for missed rows, and may deliver them out of order.
type timeBound struct {
	longest time.Duration // the maximum time for which a transaction stays open
	steps   []step
}

// step records a time and the highest id that was known to be assigned then.
type step struct {
	at time.Time
	id int64
}

// boundSteps is the approximate number of steps that a timeBound records within the time `longest`.
const boundSteps = 64

// passed records the highest assigned id, and returns the highest id that has become final since the last call, or 0 if none has. It
// measures time with the monotonic clock.
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
