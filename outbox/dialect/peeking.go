package dialect

// ClaimPeeking is implemented by a dialect that says for much less than it takes to
// claim and to free whether there is anything to: without a transaction, and
// without a lock.
type ClaimPeeking interface {
	// PeekFree selects the id of a free row, if there is one.
	PeekFree(table Table) Query

	// PeekEnded selects the ids of a claim that has ended and of a held row that is
	// due, if there are any.
	PeekEnded(table Table) Query
}

func freeRow(table Table, and string) string {
	return "SELECT id FROM " + table.Hot() + " WHERE claimed_until IS NULL" + and + " ORDER BY id LIMIT 1"
}

// ended selects what FreeEnded and Return would begin with.
func ended(claims, held string) string {
	return "SELECT id FROM (" + claims + " LIMIT 1) AS c UNION ALL SELECT id FROM (" + held + " LIMIT 1) AS h"
}
