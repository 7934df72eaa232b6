package dialect

import "time"

func (sqlite) Receive(table Table, consumer, messageID string) Query {
	return sqliteQuery(receive(table, "VALUES (?, ?) ON CONFLICT DO NOTHING"), consumer, messageID)
}

// Received is never: there is no error.
func (sqlite) Received(error) bool { return false }

func (sqlite) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return sqliteQuery("DELETE FROM "+table.Inbox()+" WHERE (consumer, message_id) IN (SELECT consumer, message_id FROM "+table.Inbox()+
		" WHERE consumer = ? AND received_at < "+sqliteIn+" ORDER BY received_at LIMIT ?)", consumer, sqliteSeconds(-window), int64(limit))
}

func (sqlite) InboxVersion(table Table) Query { return inboxVersion(table) }
