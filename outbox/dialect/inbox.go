package dialect

import "time"

// Inboxes is what a consumer needs of a dialect to recognise a message that
// comes again. The table is an inbox, which has nothing but the names of
// consumers and the ids of what they received.
type Inboxes interface {
	// Receive inserts the id for this consumer, which affects one row. Where
	// the id is there already it affects none, or fails with an error that
	// Received knows. It waits for a transaction that has inserted the same and
	// is still open.
	Receive(table Table, consumer, messageID string) Query

	// Received says that Receive failed because the id is there. The transaction
	// can go on.
	Received(err error) bool

	// PurgeReceived deletes up to limit of this consumer's ids that were received
	// longer ago.
	PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query

	// InboxVersion selects the version of the table, as text.
	InboxVersion(table Table) Query
}

// receive is the statement of all databases, up to what they do about an id
// that is there.
func receive(table Table, values string) string {
	return "INSERT INTO " + table.Inbox() + " (consumer, message_id) " + values
}

// inboxVersion is 1 where there is a table: there is no other version.
func inboxVersion(table Table) Query {
	return Query{SQL: "SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM " + table.Inbox() + " WHERE consumer IS NULL"}
}
