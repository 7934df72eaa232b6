package dialect

import "time"

// Receive looks first, since some sessions have SET XACT_ABORT ON, where an error
// ends the transaction. A lock of the range would keep the id's neighbours
// waiting, too; without it two may find nothing, and the second one fails.
func (sqlserver) Receive(table Table, consumer, messageID string) Query {
	var a sqlserverArgs
	name, id := a.add(consumer), a.add(messageID)
	return a.query(
		receive(table, "SELECT "+name+", "+id),
		"WHERE NOT EXISTS (SELECT 1 FROM "+table.Inbox()+" WITH (UPDLOCK, ROWLOCK) WHERE consumer = "+name+" AND message_id = "+id+" AND size = DATALENGTH("+id+"))")
}

// Received: violation of a key, duplicate key in a unique index. They take back
// the statement alone, or, with XACT_ABORT, the transaction, which can't be
// committed then.
func (sqlserver) Received(err error) bool { return hasNumber(err, 2627, 2601) }

func (sqlserver) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	var a sqlserverArgs
	return a.write(
		"WITH old AS (",
		"    SELECT TOP ("+a.int(limit)+") * FROM "+table.Inbox()+" WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE consumer = "+a.add(consumer)+" AND received_at < "+a.ago(window)+" ORDER BY received_at)",
		"DELETE FROM old")
}

func (sqlserver) InboxVersion(table Table) Query { return inboxVersion(table) }
