package dialect

import "time"

func (postgres) Receive(table Table, consumer, messageID string) Query {
	var a postgresArgs
	return a.query(receive(table, "VALUES ("+a.text(consumer)+", "+a.text(messageID)+") ON CONFLICT DO NOTHING"))
}

// Received is never: an error would have ended the transaction.
func (postgres) Received(error) bool { return false }

// PurgeReceived passes over rows that another is deleting. It names rows by
// their key: there are servers that know no places of rows.
func (postgres) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	var a postgresArgs
	return a.query(
		"WITH old AS MATERIALIZED (",
		"    SELECT consumer, message_id FROM "+table.Inbox()+" WHERE consumer = "+a.text(consumer)+" AND received_at < now() - "+a.interval(window),
		"    ORDER BY received_at LIMIT "+a.int(limit)+" FOR UPDATE SKIP LOCKED)",
		"DELETE FROM "+table.Inbox()+" AS i USING old WHERE i.consumer = old.consumer AND i.message_id = old.message_id")
}

func (postgres) InboxVersion(table Table) Query { return inboxVersion(table) }
