package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Capabilities describes the differences between databases that a store depends on.
type Capabilities struct {
	// Tx has the options of all transactions. It requests READ COMMITTED, or is nil if the database or its
	// drivers offer no choice of isolation level.
	Tx *sql.TxOptions

	// Claims is the number of claims by rows that one relay should run concurrently, at least 1. MySQL and
	// MariaDB are slower with several, because a claim skips the rows that another claim has locked one by one.
	Claims int

	// Frontier is the method by which the store learns where rows may still appear. It has no default.
	Frontier Frontier

	// Walk is the order in which Read and Candidates visit positions without a key.
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

// Frontier is the method by which the store learns where rows may still appear. The zero Frontier is
// invalid, and a store rejects a backend that has it.
type Frontier int

const (
	// OneWriter means that one transaction writes at a time. Ids are therefore committed in their order, and
	// no row appears below the last id. The store also serializes its own writers.
	OneWriter Frontier = iota + 1

	// Snapshots means that the first line of each Read contains the transactions that the Read sees.
	Snapshots

	// OpenTransactions means that the backend is a [TransactionLister].
	OpenTransactions
)

// Walk is the order in which rows are read.
type Walk int

const (
	// WalkPositions reads one position after the other, each in the order of ids.
	WalkPositions Walk = iota

	// WalkByID reads the rows of all lanes together in the order of ids, and ignores Read.Share.
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
	// ListOpen lists the open transactions, in a transaction of its own that changes nothing. The token consists
	// of letters and digits and differs in each call. If a database may return an outdated list, the backend can
	// look for the token in the list to detect that.
	ListOpen(ctx context.Context, token string) (OpenList, error)

	// Grant returns what an administrator must grant to the user so that ListOpen works.
	Grant() string
}

// OpenList is a list of open transactions.
type OpenList struct {
	// Server identifies this server and its copy of the table. Numbers of different servers are never
	// compared. It is empty if the server is unknown.
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

// ReadOpenList reads an OpenList from lines that consist of a word and a text. The lines are ("number", n),
// ("open", n) and ("ending", n) with decimal numbers, ("all", any text) if the list is complete, and
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
		return OpenList{}, err // an incomplete list can't be used
	}
	return list, nil
}
