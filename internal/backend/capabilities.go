package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Capabilities describes the properties that differ between databases and on which a store depends.
type Capabilities struct {
	// Tx has the options of all transactions. It requests READ COMMITTED, or is nil if the database or its
	// drivers offer no choice of isolation level.
	Tx *sql.TxOptions

	// Claims is the number of claims by rows that one relay should run concurrently, at least 1. Several claims
	// make MySQL and MariaDB slower, because a claim skips the locked rows of another claim one by one.
	Claims int

	// Frontier is the method by which the store finds the highest id up to which no new row can appear. It has no default.
	Frontier Frontier

	// Walk is the order in which Read and Candidates visit positions without a key.
	Walk Walk

	// WithTimeLimit returns the given SELECT with a time limit that the server enforces. The limit is at least a millisecond.
	// WithTimeLimit is nil if the server ends a statement when its client disconnects. MySQL and MariaDB continue such a
	// statement until they have a row to send.
	WithTimeLimit func(statement string, limit time.Duration) string

	// Pending is the table of pending rows (outbox), as statements name it.
	Pending string

	// Statements has the statements of the database's .sql file. Each file has at least the following statements,
	// with their arguments in the given order:
	//   - claim mode: the stored claim mode, if any
	//   - delete old done: deletes some rows that were done a day ago or earlier; operators run this statement
	//   - clock: the database's time, the age of the oldest done row in milliseconds, and the time zone
	//   - deregister (relay): deletes the relay from the table of relays
	//   - end leases (relay): ends the relay's leases as if they had expired, and increases their fences
	//   - end claims (relay): ends the relay's claims as if they had expired, if the table is claimed by rows
	//   - journals: lane, fence and journal of all lanes that have a journal
	//   - marks: lane and marks of all lanes that have marks
	//   - replays: name and text of each replay
	//   - last delivered: the highest id of the done rows, or 0 if no row is done
	//   - controls in force: kind, name, rate, end, operator, start and reason of each control
	//   - forget ended controls: deletes the controls whose end has passed
	//   - lift control (kind, name)
	//   - set control (kind, name, rate, duration in microseconds or NULL, operator, reason)
	//   - begin action (id, operator, action, target, reason)
	//   - end action (number of changed messages, id)
	//   - log of actions: id, time, operator, action, target, reason and number of changed messages (or -1) of
	//     each action, the latest first
	Statements Statements

	// Queries has the statements that only some databases need, and the statements whose arguments differ between databases.
	Queries Queries
}

// Frontier is the method by which the store finds the frontier, the highest id up to which no new row can
// appear. The zero Frontier is invalid, and a store rejects a backend that has it.
type Frontier int

const (
	// OneWriter means that only one transaction at a time can write. So rows are committed in the order of
	// their ids, and no row appears below the last id. The store also serializes its own writers.
	OneWriter Frontier = iota + 1

	// Snapshots means that the [FirstLine] of each Read contains a snapshot, which shows which transactions the Read sees.
	Snapshots

	// OpenTransactions means that the backend is a [TransactionLister].
	OpenTransactions
)

// Walk is the order in which rows are read.
type Walk int

const (
	// WalkPositions reads one position (a range of ids in one lane) after the other, and the rows of each in the order of their ids.
	WalkPositions Walk = iota

	// WalkByID reads the rows of all positions together in the order of ids, and ignores Read.Share.
	WalkByID
)

// TransactionLister is implemented by a backend whose database lets several transactions write
// concurrently, but can't show which of them a read sees. The store periodically lists the open transactions,
// and finds the frontier with these lists.
//
// This requires that each transaction that writes has a number, and that numbers are issued in
// ascending order. A transaction gets its number at most a second after it took an id for a row.
// From then on, lists contain the transaction until its rows are visible to all other transactions. The
// number may be the transaction's own, or the position in a log at the transaction's first change.
type TransactionLister interface {
	// ListOpen lists the open transactions, in a separate transaction that changes nothing. The token consists
	// of letters and digits and differs in each call. If a database may return an outdated list, the backend can
	// look for the token in the list to detect that.
	ListOpen(ctx context.Context, token string) (OpenList, error)

	// Grant returns what an administrator must grant to the user so that ListOpen works.
	Grant() string
}

// OpenList is a list of open transactions.
type OpenList struct {
	// Server identifies this server and its copy of the table. Numbers of different servers are never
	// compared. Server is empty if the server is unknown.
	Server string

	// Number is the highest number that had been issued at some time after ListOpen began and before the
	// server made the list. A transaction that gets its number after that time gets a higher one. If Number
	// is 0, the list is unusable, and the store requests another list later.
	Number uint64

	// Open has the numbers of the open transactions: either all numbers up to Number, or a single number that is
	// at most the lowest of them. Open may also contain numbers above Number. A transaction that has written
	// nothing and executes no statement may be missing, because it takes its ids later.
	Open []uint64

	Ending []uint64 // like Open, but for open transactions whose rows may be visible already
	All    bool     // Open and Ending contain all numbers, not only the lowest
}

// ReadOpenList reads an OpenList from lines that consist of a word and a text. The lines are ("number", n),
// ("open", n) and ("ending", n) with a decimal number n, ("server", text), and, if the list is complete,
// ("all", any text).
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
