package dialect

import "time"

// Relaying is what a relay's store needs of a dialect. Where a method returns
// one Query, that alone is the whole change, and where it returns Steps, these
// are; the doc comments say which columns the rows of the answer have. An xid is the number of the transaction, 0 where the database
// has none. All times are the database's.
type Relaying interface {
	// OneWriter says that the database lets one transaction write at a time, so
	// that ids are committed in their order.
	OneWriter() bool

	// Probes are what a check of the server and of the tables asks; the tables
	// are there, and are to be claimed by lanes or rows.
	Probes(table Table, claim string) []Probe

	Relays
	Lanes
	Reading
	Settling
	Rows
	Operating
}

// Schema is about the tables themselves.
type Schema interface {
	// SchemaVersion selects the version of the tables, as text.
	SchemaVersion(table Table) Query

	// MakeRowIndexes makes the indexes that claiming by rows needs, where they
	// are missing, one statement each. DropRowIndexes drops them.
	MakeRowIndexes(table Table) []Query
	DropRowIndexes(table Table) []Query

	// RowIndexes selects how many of these indexes there are, of RowIndexCount.
	RowIndexes(table Table) Query
}

// Errors tells what a driver's error means, without knowing the driver.
type Errors interface {
	// Busy: the database refused for the moment and changed nothing.
	Busy(err error) bool

	// Missing: a table or a schema isn't there.
	Missing(err error) bool

	// Denied: the user lacks a right.
	Denied(err error) bool
}

// Relays is about the table of relays and the way of claiming.
type Relays interface {
	// Begin starts a transaction that changes several things: it takes the
	// database's lock where there is only one, and bounds the wait for others.
	Begin(table Table) []Query

	// LockClaim selects the way of claiming, and keeps others from changing it;
	// SetClaim stores it. OtherRelays selects the names of the living relays
	// that claim another way.
	LockClaim(table Table) Query
	SetClaim(table Table, claim string) Query
	OtherRelays(table Table, claim string) Query

	// Forget takes away what the other way of claiming has left: leases, also
	// from who still believes in them; marks, above which rows come back; and
	// claims, which nobody would free.
	Forget(table Table) []Query

	// Beat stores a sign of life if the way of claiming is still the relay's:
	// name, xid, epoch, which is what tells the server in the first line of a Read;
	// no row if it isn't. Census selects the names of the living.
	Beat(table Table, beat Beat) Steps
	Census(table Table) Query

	Leave(table Table, name string) Query

	// PurgeRelays deletes those that died long ago.
	PurgeRelays(table Table) Query
}

// Lanes is about the table of lanes.
type Lanes interface {
	// Acquire leases up to count lanes: lane, fence, marks, crashes, journal, xid.
	Acquire(table Table, relay string, count int, ttl time.Duration) Steps

	// Renew extends leases: lane, fence, xid of those that held. The marks are stored
	// where the epoch is the server's, or empty.
	Renew(table Table, relay, epoch string, leases []Lease, ttl time.Duration) Steps

	// Release gives lanes back: lane, fence, xid of those that held. The marks are
	// stored as by Renew.
	Release(table Table, relay, epoch string, leases []Lease) Steps

	// Journal stores the journals: lane, fence, xid of those that held.
	Journal(table Table, relay string, leases []Lease) Steps

	// Journals selects lane, fence, journal of the lanes that have one.
	Journals(table Table) Query

	// Marks selects lane, marks of the lanes that have some.
	Marks(table Table) Query
}

// Reading is what a relay reads. "A row" has these columns, in this order: id,
// lane, message_id, topic, message_key, payload, headers, available_at,
// priority, attempts, crashes, created_at, flags. The flags are a sum of
// [HasPayload], [IsLater], [IsRetry] and [IsUTF16], and of the payload's size in
// [SizeOne] where a driver may cut payloads. NULL may stand for an empty key, no
// headers, the numbers 0, and the flags HasPayload: what most rows have.
type Reading interface {
	// Given selects the highest id that was given out, 0 if none was.
	Given(table Table) Query

	// Read selects rows at the positions, one position after the other, each by
	// id: a text, then a row. The first line has the text and no row, whose id is
	// 0, and all others have no text; or each line has the text and a row, and with
	// no positions there is one line, without a row. All are of one snapshot. The
	// text has, with blanks between:
	// the highest id that was given out; an id above which rows were left out to
	// keep to the share, or 0; and, where several transactions may write at a
	// time, its own transaction's number (0 if it has none), its snapshot, and
	// what tells one run of a server from another. Of a dialect that is
	// [Observing] it has instead: 0, 0, and the server as Observe names it.
	Read(table Table, read Read) Query

	// Candidates selects id, lane, topic, message_key and the payload's bytes at
	// the positions, in the order that Read has; rows of the topics in except may be left out.
	Candidates(table Table, positions []Position, except []string, limit int) Query

	// Pick selects pending rows by lane and id: rows, in no order.
	Pick(table Table, lanes []int, ids []int64) Query

	// PickHeld selects held rows, but no parked ones, by lane and id: rows, in
	// no order.
	PickHeld(table Table, lanes []int, ids []int64) Query

	// Due selects held rows of the lanes that are due, by their time and id:
	// rows. No time counts as the zero time.
	Due(table Table, lanes []int, after After, limit, maxBytes int) Query

	// HeldKeys selects lane, message_key, topic, id of keys that a retry holds.
	HeldKeys(table Table, lanes []int, limit int) Query

	// HeldAmong selects of those of these keys that a retry holds lane,
	// message_key, topic and the lowest id of each topic. Each is found by an index.
	HeldAmong(table Table, lanes []int, keys []string) Query
}

// Settling is how rows are settled. The settlements are in the order of lanes
// and ids, and none is there twice. A row is changed if it has the message that is
// shown: an id may have been given out again.
type Settling interface {
	// SettleLanes locks the lanes against a takeover and changes the rows of
	// those whose fence is the one shown and whose owner is the relay.
	SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle

	// SettleRows changes the rows whose claim is the one shown.
	SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle

	// Purge deletes done rows.
	Purge(table Table, purge Purge) []Write
}

// Rows is claiming by rows. Each of these changes nothing unless the table is
// claimed by rows, and keeps others from changing that until what it did is
// committed: a relay may have been stopped while the table was changed to lanes,
// and brings back rows that it freed below marks of others.
type Rows interface {
	// Claim stamps free rows: rows, in no order. Or After stamps those that Ask has
	// found: then these come in the order of the pick, and large payloads may be
	// NULL, with their sizes in the flags (see [SizeOne]): what is claimed of them is
	// picked.
	Claim(table Table, claim Claim) Steps

	// Extend selects the ids that were still claimed.
	Extend(table Table, token string, ids []int64, ttl time.Duration) Steps

	// FreeEnded frees rows whose claim has ended; Return brings held rows back
	// that are due, but for those whose lane and id another row has by then. Each
	// affects up to limit rows that become free.
	FreeEnded(table Table, limit int) []Write
	Return(table Table, limit int) []Write
}

// Operating is what an operator does.
type Operating interface {
	// List selects a row, then state, last_error, receipt, claimed_by,
	// finished_at, by id.
	List(table Table, filter Filter) Query

	// Requeue and Discard affect parked rows, up to the filter's limit, and
	// select the id of each.
	Requeue(table Table, filter Filter) Steps
	Discard(table Table, filter Filter) Steps

	// Counts selects state, count of all states; those above the limit are
	// estimated.
	Counts(table Table, limit int) Query

	// Oldest selects the age in milliseconds of the oldest row that could be
	// delivered now.
	Oldest(table Table) Query

	// Topics selects topic, count of the first pending rows, up to the limit.
	Topics(table Table, limit int) Query

	// ListRelays selects name, host, version, claim, since, last_beat, alive,
	// lanes.
	ListRelays(table Table) Query

	// LanesLeased selects how many are.
	LanesLeased(table Table) Query

	// ClaimedBy selects the way of claiming; no row before the first relay.
	ClaimedBy(table Table) Query
}
