package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Capabilities are the ways in which databases differ that a store has to know of.
type Capabilities struct {
	// Tx are the options of all transactions: READ COMMITTED, or nil where there is no
	// choice, or where no driver offers it.
	Tx *sql.TxOptions

	// Claims is how many claims by rows of one relay are worth having in flight at a
	// time, at least 1. MySQL and MariaDB are slower with several: a claim passes over
	// what another has locked, one row after the other.
	Claims int

	// Frontier is how it is known where rows may still appear. It has no default.
	Frontier Frontier

	// Walk is how Read and Candidates go through the positions that have no key.
	Walk Walk

	// WithTimeLimit makes of a SELECT one that the server ends by itself after a time, of at least a millisecond. It is nil
	// where a server ends a statement that its client has left. MySQL and MariaDB go on with it until they have a row to send.
	WithTimeLimit func(statement string, limit time.Duration) string

	// Pending is the table of rows that are to be delivered, as statements name it.
	Pending string

	// Statements are those of the database's .sql, which has each of these, with its arguments in this
	// order:
	//   - claim mode: the stored way of claiming, if there is one
	//   - delete old done: a statement that operators run; it deletes some rows that were done a day ago or earlier
	//   - clock: the database's time, the age of the first done row in milliseconds, and the time zone
	//   - deregister (relay): takes it out of the table of relays
	//   - end leases (relay): ends them as if their time were over, and raises their fences
	//   - end claims (relay): ends them likewise, in a table that is claimed by rows
	//   - journals: lane, fence and journal of all lanes that have one
	//   - marks: lane and marks of all lanes that have some
	//   - replays: the name of each replay, and its text
	//   - last delivered: the highest id of the done rows, 0 without any
	//   - controls in force: kind, name, rate, when it ends, by whom, since when and why, of each
	//   - forget ended controls: deletes them
	//   - lift control (kind, name)
	//   - set control (kind, name, rate, for how many microseconds or NULL, by whom, why)
	//   - begin action (id, by whom, what, of what, why)
	//   - end action (how many, id)
	//   - log of actions: id, when, by whom, what, of what, why and how many (or -1) of each, the last one first
	Statements Statements

	// Queries are statements whose arguments are the database's own, or which not every database has.
	Queries Queries
}

// Frontier is how it is known where rows may still appear. The zero Frontier is none: a store
// refuses a backend that has it.
type Frontier int

const (
	// OneWriter: one transaction writes at a time, so ids are committed in their order, and
	// rows appear nowhere below the last id. The store has its own writers queue, too.
	OneWriter Frontier = iota + 1

	// Snapshots: the first line of each Read tells which transactions it sees.
	Snapshots

	// OpenTransactions: the backend is a [TransactionLister].
	OpenTransactions
)

// Walk is the order in which rows are read.
type Walk int

const (
	// WalkPositions is one position after the other, each by id.
	WalkPositions Walk = iota

	// WalkByID is along the ids, of whatever lane they are; there is no share.
	WalkByID
)

// TransactionLister is implemented by a backend whose database lets several
// transactions write at a time, and shows no snapshots: its first line says nothing
// of transactions. There, the store asks now and then which transactions are open,
// and concludes how far ids are final.
//
// It builds on this: each transaction that writes has a number, and numbers ascend in the
// order in which they are given out. A transaction has its number, and is listed as open,
// at the latest a second after it took an id for a row, and until its rows are visible to
// all. What kind of number it is
// doesn't matter: a transaction's own, or the position in a log at its first
// change.
type TransactionLister interface {
	// ListOpen lists the transactions that are open, in a transaction of its own,
	// which changes nothing. The token is another one each time, of letters and
	// digits: a database whose list may be an old one can look for it in the list.
	ListOpen(ctx context.Context, token string) (OpenList, error)

	// Grant is what an administrator has to grant to the user, so that ListOpen works.
	Grant() string
}

// OpenList is a list of open transactions.
type OpenList struct {
	// Server tells this server, and its copy of the table, from another: numbers are
	// never compared across. Empty: it isn't known.
	Server string

	// Number was given out, or had just been reached, after the asking began and
	// before the list was made: whoever gets one later gets a higher one. 0: the
	// answer says nothing, and is to be asked for again later.
	Number uint64

	// Open are the transactions that are open; all of them that have a number of at
	// most the above, or their lowest alone (or anything lower). There may be higher
	// ones, too. Who has written nothing, and is in the midst of no statement, may be
	// left out: its ids are still to come.
	Open []uint64

	Ending []uint64 // the same, of those whose rows may be visible already
	All    bool     // they are all, and not the lowest alone
}

// ReadOpenList reads lines of a word and a text: ("number", n), ("open", n) and
// ("ending", n) with numbers in decimal, ("all", anything) if they are all, and
// ("server", text).
func ReadOpenList(ctx context.Context, q Querier, query Query) (list OpenList, err error) {
	var word, text string
	var wrong error
	err = All(ctx, q, query, func() {
		switch word {
		case "server":
			list.Server = text
			return
		case "all":
			list.All = true
			return
		}
		number, err := strconv.ParseUint(text, 10, 64)
		switch {
		case err != nil:
			wrong = fmt.Errorf("read the number of a transaction: %w", err)
		case word == "number":
			list.Number = number
		case word == "ending":
			list.Ending = append(list.Ending, number)
		default:
			list.Open = append(list.Open, number)
		}
	}, &word, &text)
	if err = errors.Join(err, wrong); err != nil {
		return OpenList{}, err // a list that broke off says nothing
	}
	return list, nil
}
