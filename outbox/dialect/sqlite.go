package dialect

import (
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
)

type sqlite struct{}

// SQLite returns the dialect of SQLite 3.35 and later. Open databases in WAL mode with
// a busy_timeout, and use BEGIN IMMEDIATE for transactions that write
// (_txlock=immediate in the DSN of both common drivers). Without IMMEDIATE a transaction
// that reads before it writes fails without waiting if another transaction has written
// meanwhile.
func SQLite() Dialect { return sqlite{} }

// Name returns "sqlite".
func (sqlite) Name() string { return "sqlite" }

// Insert writes times in UTC, so that they compare correctly as text.
func (sqlite) Insert(table Table, rows []Row) []Query {
	const maxBytes, maxParameters = 1 << 30, 32766
	return insertValues(table, insertColumns(rows, time.Millisecond, "2006-01-02 15:04:05.000"), rows, maxParameters, maxBytes)
}

func (sqlite) InsertIDs(table Table, ids []string, token int64) []Query {
	return []Query{{
		SQL:  "INSERT INTO " + table.IDs + " (message_id, write_token) SELECT value, ? FROM json_each(?) WHERE true ON CONFLICT DO NOTHING",
		Args: []any{token, bind.JSON(ids)},
	}}
}

func (sqlite) DeleteIDs(table Table, ids []string, token int64) []Query {
	return []Query{{
		SQL:  "DELETE FROM " + table.IDs + " WHERE message_id IN (SELECT value FROM json_each(?)) AND ? IN (0, write_token)",
		Args: []any{bind.JSON(ids), token},
	}}
}

// Cancel repeats the condition of the partial indexes, "available_at IS NOT NULL".
func (sqlite) Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query) {
	where := " WHERE message_id = ? AND available_at IS NOT NULL AND available_at > strftime('%Y-%m-%d %H:%M:%f', 'now', ?)"
	args := []any{messageID, fmt.Sprintf("%+.3f seconds", ahead.Seconds())}
	return Query{}, [2]Query{
		{SQL: "DELETE FROM " + table.Pending + where, Args: args},
		{SQL: "DELETE FROM " + table.Held + where + " AND state = 'scheduled'", Args: args},
	}
}

// LockKeys returns nothing: SQLite has one writer at a time.
func (sqlite) LockKeys(Table, []string) []Query { return nil }

// Notify returns nothing: SQLite can't wake another process.
func (sqlite) Notify(Table) []Query { return nil }

func (sqlite) Written(table Table) Query {
	return Query{SQL: "SELECT message_id, topic, message_key, payload, payload IS NULL, payload_text, headers," +
		" available_at, expires_at, priority FROM " + table.Messages + " ORDER BY id"}
}

func (sqlite) Receive(table Table, consumer, messageID string) Query {
	return Query{SQL: "INSERT INTO " + table.Inbox + " (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING", Args: []any{consumer, messageID}}
}

// Received returns false: Receive uses ON CONFLICT and doesn't fail.
func (sqlite) Received(error) bool { return false }

func (sqlite) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return Query{
		SQL: "DELETE FROM " + table.Inbox + " WHERE (consumer, message_id) IN (SELECT consumer, message_id FROM " + table.Inbox +
			" WHERE consumer = ? AND received_at < strftime('%Y-%m-%d %H:%M:%f', 'now', ?) ORDER BY received_at LIMIT ?)",
		Args: []any{consumer, fmt.Sprintf("%+.3f seconds", -window.Seconds()), int64(limit)},
	}
}

func (sqlite) InboxVersion(table Table) Query { return inboxVersion(table) }

func (sqlite) FixedRows(table Table) []FixedRows {
	return []FixedRows{{
		Table: table.Lanes, Want: 64,
		Count: Query{SQL: "SELECT count(*) FROM " + table.Lanes},
		Fill: Query{SQL: "INSERT OR IGNORE INTO " + table.Lanes + " (lane)" +
			" WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 63) SELECT n FROM numbers"},
	}}
}

func (sqlite) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings + " WHERE name = 'schema'"}
}

// MakeRowIndexes puts the schema before the index's name and not before the table's name, as
// SQLite requires.
func (sqlite) MakeRowIndexes(table Table) []Query {
	return makeRowIndexes(table.Index, table.quoted(table.Name))
}

func (sqlite) DropRowIndexes(table Table) []Query { return dropRowIndexes(table) }

func (sqlite) RowIndexes(table Table) Query {
	return Query{
		SQL:  "SELECT count(*) FROM " + table.Beside("sqlite_master") + " WHERE type = 'index' AND name IN (?, ?, ?)",
		Args: []any{table.Name + "_claim_id", table.Name + "_claim_priority", table.Name + "_claim_until"},
	}
}

// The errors of SQLite's drivers have no common type, but all contain SQLite's own text.

func (sqlite) Busy(err error) bool {
	return says(err, "database is locked", "database table is locked")
}

func (sqlite) Missing(err error) bool { return says(err, "no such table", "unknown database") }

func (sqlite) Invalid(err error) bool {
	return says(err, "constraint failed", "datatype mismatch", "string or blob too big", "integer overflow")
}

func (s sqlite) Refused(err error) bool {
	return s.Denied(err) || says(err, "no such column", "has no column named", "syntax error", "may not be modified")
}

func (sqlite) Denied(err error) bool { return says(err, "attempt to write a readonly database") }

// SQLite has no time limits, and no other server to which a relay could switch.
func (sqlite) TimedOut(error) bool { return false }
func (sqlite) ReadOnly(error) bool { return false }

func (sqlite) settings() []Setting {
	return []Setting{
		{Name: "journal_mode", Value: "WAL", Why: "readers and the writer don't block each other", Refused: "all except WAL, and except MEMORY for a database in memory"},
		{Name: "busy_timeout", Value: "10000", Why: "a writer waits for other writers", Refused: "less than 1000"},
		{Name: "synchronous", Value: "FULL", Why: "with NORMAL a power failure can lose the last commits"},
		{Name: "foreign_keys", Value: "1", Why: "the application's foreign keys are enforced for rows that the command writes"},
	}
}
