package dialect

// Observing is implemented by a dialect whose database lets several
// transactions write at a time, and shows no snapshots: its Read says nothing of
// transactions. There, the store asks now and then which transactions are open,
// and concludes how far ids are final.
//
// It builds on this: each transaction that writes has a number; numbers ascend
// in the order in which they are given out; and a transaction that takes an id
// has its number, and is seen to be open, less than a second later, or earlier
// than the id, until its rows are visible to all. What kind of number it is
// doesn't matter: a transaction's own, or the position in a log at its first
// change.
type Observing interface {
	// Observe is asked in a transaction of its own, which changes nothing. The
	// answer has lines of a word and a text:
	//
	//	("number", n): a number, in decimal, that was given out, or had just been
	//	reached, after the asking began and before the list of those that are
	//	open was made: whoever gets one later gets a higher one. Without this
	//	line the answer says nothing, and the store asks again later.
	//
	//	("open", n): a transaction that is open; all of them that have a number
	//	of at most the above, or their lowest alone (or anything lower). It may
	//	be a higher one, too. Who has written nothing, and is in the midst of no
	//	statement, may be left out: its ids are still to come.
	//
	//	("ending", n): the same, of one whose rows may be visible already.
	//
	//	("all", anything): they are all, and not the lowest alone.
	//
	//	("server", text): what tells this server, and its copy of the table, from
	//	another: numbers are never compared across.
	//
	// The token is another one each time, of letters and digits: a database
	// whose list may be an old one can look for it in the list.
	Observe(table Table, token string) Steps
}

// Granted is implemented by a dialect that names what an administrator has to
// grant to a user, so that [Observing] works for it.
type Granted interface{ Grant() string }
