package dialect

import "time"

func (oracle) Receive(table Table, consumer, messageID string) Query {
	var a oracleArgs
	return a.query(receive(table, "VALUES ("+a.add(consumer)+", "+a.add(messageID)+")"))
}

// Received: unique constraint violated. It takes back the statement alone.
func (oracle) Received(err error) bool { return hasORA(err, 1) }

func (oracle) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	var a oracleArgs
	return a.query("DELETE FROM " + table.Inbox() + " WHERE consumer = " + a.add(consumer) +
		" AND received_at < " + a.in(-window) + " AND ROWNUM <= " + a.int(limit))
}

func (oracle) InboxVersion(table Table) Query { return inboxVersion(table) }
