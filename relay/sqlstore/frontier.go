package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// frontier knows where rows may still appear. Ids are given out in order, but
// transactions commit in any order: a row may appear below others that were read
// long ago. So each page promises two things:
//
//   - SafeID: no row can appear any more at or below this id.
//   - LateAfter: what has appeared since the page before has a higher id than this
//     one; negative if nothing has.
//
// In come the first line of each read, the ids of its rows, and the numbers that
// transactions of ours have had. A promise may say less than is true, which costs a
// longer way to read again; it never says more. What a read has seen is told by its
// own page: one that fails changes nothing, and the page after it tells the same.
//
// The answers, by what a database shows:
//
//   - [oneWriter]: one transaction writes at a time (SQLite).
//   - [snapshots]: a read tells which transactions it sees (PostgreSQL).
//   - [openTx]: now and then, the transactions that are open are listed (MySQL,
//     MariaDB, SQL Server, Oracle).
//   - [timeBound]: nobody can see them, and a transaction is taken to be over after
//     so long (the same, where this user lacks the right; TiDB). It is a part of
//     openTx, as the right may be taken away at any time.
//
// before and wrote may be called concurrently; the others by who reads, in turn.
type frontier interface {
	// start begins anew, before lanes are read, with the highest id that this server
	// has given out: another one may have answered when the table was opened.
	start(server string, given int64)

	// before is what is known before a statement of ours. If the statement's
	// transaction has a number, wrote is told, with what before returned.
	before() token
	wrote(xid uint64, began token)

	// look finds out, before a read, what the read's page is to promise, if the
	// first line doesn't tell.
	look(ctx context.Context) error

	// idle says, of a read's first line, that no row has appeared since the page
	// before. It is asked only where the token says current.
	idle(first backend.FirstLine) bool

	// promise has the page of a read say what is concluded from its first line and
	// its rows.
	promise(ctx context.Context, first backend.FirstLine, began token, page *storage.Page) error

	// learn is told of an id that was given out, beside those of rows.
	learn(id int64)

	// failed is told that a read failed: the server may be another one afterwards.
	failed()

	// distrust forgets all that is concluded from; see [storage.LaneStore].
	distrust()
}

// openFrontier makes the answer that fits the database. Given is the highest id that was
// given out; unordered is as in [dialect.Fit].
func (s *Store) openFrontier(ctx context.Context, given int64, unordered bool) error {
	switch s.traits.Frontier {
	case backend.Snapshots:
		s.frontier = &snapshots{given: given}
	case backend.OpenTransactions:
		o := newOpenTx(given, time.Now())
		o.db = openTxLister{s.backend.(backend.TransactionLister), s.lastID, s.dialect, s.table, s.options.LongestTransaction}
		s.frontier = o
		return o.open(ctx, unordered, &s.findings)
	default:
		s.frontier = oneWriter{}
	}
	return nil
}

// token is what was known when a statement began.
type token struct {
	given   int64 // the highest id that was given out
	run     int   // a restart makes older tokens worthless
	current bool  // the first line alone says whether anything has appeared; see [snapshots]
}

// oneWriter is the frontier where one transaction writes at a time: ids are committed
// in their order, so that nothing appears at or below the last one.
type oneWriter struct{}

func (oneWriter) promise(_ context.Context, first backend.FirstLine, _ token, page *storage.Page) error {
	page.Epoch, page.LastID, page.SafeID, page.LateAfter = first.Server, first.LastID, first.LastID, -1
	return nil
}

func (oneWriter) start(string, int64)         {}
func (oneWriter) before() token               { return token{} }
func (oneWriter) wrote(uint64, token)         {}
func (oneWriter) look(context.Context) error  { return nil }
func (oneWriter) idle(backend.FirstLine) bool { return false }
func (oneWriter) learn(int64)                 {}
func (oneWriter) failed()                     {}
func (oneWriter) distrust()                   {}

// checkpoint: a transaction with a higher number than xid has ids above id only.
type checkpoint struct {
	xid uint64
	id  int64
}

// checkpoints are sorted by xid, and so by id. One that is missing only makes a floor
// lower, which costs a longer way to read again.
type checkpoints []checkpoint

// maxCheckpoints bounds the list.
const maxCheckpoints = 512

// from returns where the checkpoints begin that have this number or a higher one.
func (c checkpoints) from(xid uint64) int {
	at, _ := slices.BinarySearchFunc(c, xid, func(c checkpoint, xid uint64) int { return cmp.Compare(c.xid, xid) })
	return at
}

// add makes a checkpoint.
func (c *checkpoints) add(xid uint64, id int64) {
	at := c.from(xid)
	if at > 0 && (*c)[at-1].id >= id {
		return // an earlier one says more
	}
	end := at
	for end < len(*c) && (*c)[end].id <= id {
		end++ // says less than this one
	}
	list := slices.Replace(*c, at, end, checkpoint{xid, id})
	if len(list) > maxCheckpoints { // drop every other one of the older half: the list is the sparser the older
		kept := list[:0]
		for i, each := range list {
			if i%2 == 0 || i >= maxCheckpoints/2 {
				kept = append(kept, each)
			}
		}
		list = kept
	}
	*c = list
}

// floor is below every id that a transaction with this number or a higher one
// can have written or will write; 0 if nothing is known.
func (c checkpoints) floor(xid uint64) int64 {
	if at := c.from(xid); at > 0 {
		return c[at-1].id
	}
	return 0
}

// prune drops the checkpoints that no floor is going to come from: those before
// the one that holds for the lowest transaction that may still end.
func (c *checkpoints) prune(lowest uint64) {
	if at := c.from(lowest); at > 1 {
		*c = slices.Delete(*c, 0, at-1)
	}
}
