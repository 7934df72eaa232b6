package dialect

// idIsFree is a condition of held rows t: no row of the hot table has their id, as one
// may have after ids began anew. A count is asked for each row, whatever a planner
// makes of it.
func idIsFree(table Table) string {
	return "(SELECT COUNT(*) FROM " + table.Hot() + " h WHERE h.lane = t.lane AND h.id = t.id) = 0"
}

// firstOfID is a condition of held rows t that are due: of several with one id, of which
// a condition of o says that they are due, one comes back at a time.
func firstOfID(table Table, due string) string {
	return "(SELECT COUNT(*) FROM " + table.Held() + " o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id < t.message_id AND " + due + ") = 0"
}
