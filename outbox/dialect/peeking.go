package dialect

// Peeking is implemented by a dialect that tells the text of a Read's first line
// for much less than a Read: as that has the highest id that was given out and
// the snapshot, it says whether a Read would find anything new.
type Peeking interface {
	// Peek selects the text, with 0 in the place of the transaction's number.
	Peek(table Table) Query
}
