package dialect

import (
	"strconv"
	"time"
)

// Receive has no IGNORE, which would pass over other errors as well; nor ON
// DUPLICATE KEY, where the number of rows depends on how the driver was set.
func (mysql) Receive(table Table, consumer, messageID string) Query {
	return mysqlQuery(receive(table.Backquoted(), "VALUES (?, ?)"), consumer, messageID)
}

// Received: duplicate entry for a key. It takes back the statement alone.
func (mysql) Received(err error) bool { return hasMySQLNumber(err, "1062") }

// PurgeReceived orders by the whole of the index, so that a replica that repeats
// the statement deletes the same.
func (mysql) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return mysqlQuery("DELETE FROM "+table.Backquoted().Inbox()+" WHERE consumer = ? AND received_at < "+mysqlIn(-window)+
		" ORDER BY received_at, message_id LIMIT "+strconv.Itoa(limit), consumer)
}

func (mysql) InboxVersion(table Table) Query { return inboxVersion(table.Backquoted()) }
