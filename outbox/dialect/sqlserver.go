package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
)

// sqlserver is SQL Server's dialect. The field reading is the isolation level at which a
// plain SELECT reads a snapshot and doesn't wait for writers: see [sqlserver.Fit].
type sqlserver struct{ reading string }

// SQLServer returns the dialect of SQL Server 2016 and later, and of Azure SQL, for a
// database that allows snapshot isolation. For a database with READ_COMMITTED_SNAPSHOT
// on, Fit returns a copy that reads at READ COMMITTED instead.
func SQLServer() Dialect { return sqlserver{reading: "SNAPSHOT"} }

// ReadingLevel returns the isolation level at which a plain SELECT of the dialect reads a
// snapshot and doesn't wait for writers. For the dialects of other databases it returns "".
func ReadingLevel(d Dialect) string {
	if fitted, ok := d.(sqlserver); ok {
		return fitted.reading
	}
	return ""
}

// Name returns "sqlserver".
func (sqlserver) Name() string { return "sqlserver" }

const sqlserverTime = "2006-01-02T15:04:05.0000000"

// Insert omits the NULL columns of a single row, because the driver sends NULL as text, which
// a binary column doesn't accept.
func (sqlserver) Insert(table Table, rows []Row) []Query {
	const maxBytes = 16 << 20
	return insertParts(rows, len(rows), maxBytes, func(part []Row) Query {
		if len(part) > 1 {
			return sqlserverInsertMany(table, part)
		}
		columns := insertColumns(part, 100*time.Nanosecond, sqlserverTime)
		places := make([]string, len(columns))
		for i := range places {
			places[i] = "@p" + strconv.Itoa(i+1)
		}
		return Query{SQL: insertInto(table, columns) + " VALUES (" + strings.Join(places, ",") + ")", Args: arguments(columns, part)}
	})
}

// sqlserverInsertMany sends the rows as one JSON list. Payloads would become longer in JSON,
// so they are sent as one joined binary value, and the server splits it. The value ends with an
// additional byte, because an empty value might be treated as NULL. ORDER BY makes ids ascend
// in the order of the rows.
func sqlserverInsertMany(table Table, rows []Row) Query {
	var payloads []byte
	var items [][]any
	for i, row := range rows {
		start, length := len(payloads)+1, any(nil)
		if row.Payload != nil {
			length = len(row.Payload)
		}
		payloads = append(payloads, row.Payload...)
		items = append(items, []any{i, start, length, row.MessageID, row.Topic, bind.Nullable(row.Key), bind.Nullable(row.Headers),
			moment(row.AvailableAt, 100*time.Nanosecond, sqlserverTime), row.Priority, moment(row.ExpiresAt, 100*time.Nanosecond, sqlserverTime)})
	}
	return Query{
		SQL: `INSERT INTO ` + table.Pending + ` (message_id, topic, message_key, payload, headers, available_at, priority, expires_at)
SELECT r.message_id, r.topic, r.message_key, SUBSTRING(@p1, r.start, r.length), r.headers, r.available_at, r.priority, r.expires_at
FROM OPENJSON(@p2) WITH (n int '$[0]', start bigint '$[1]', length bigint '$[2]',
    message_id uniqueidentifier '$[3]', topic nvarchar(255) '$[4]', message_key nvarchar(255) '$[5]',
    headers nvarchar(max) '$[6]', available_at datetime2(7) '$[7]', priority smallint '$[8]', expires_at datetime2(7) '$[9]') AS r ORDER BY r.n`,
		Args: []any{append(payloads, 0), SQLServerList(items)},
	}
}

// InsertIDs doesn't check for existing ids: the primary key has IGNORE_DUP_KEY, so the server
// skips them.
func (sqlserver) InsertIDs(table Table, ids []string, token int64) []Query {
	return []Query{{
		SQL:  "INSERT INTO " + table.IDs + " (message_id, write_token) SELECT CONVERT(uniqueidentifier, value), @p2 FROM OPENJSON(@p1)",
		Args: []any{SQLServerList(ids), token},
	}}
}

func (sqlserver) DeleteIDs(table Table, ids []string, token int64) []Query {
	return []Query{{
		SQL: "DELETE FROM " + table.IDs + " WITH (ROWLOCK) WHERE message_id IN (SELECT CONVERT(uniqueidentifier, value) FROM OPENJSON(@p1))" +
			" AND @p2 IN (0, write_token)",
		Args: []any{SQLServerList(ids), token},
	}}
}

// Cancel uses indexes that have available_at after message_id. So the seek doesn't read a row
// that is due, which a relay may have locked.
func (sqlserver) Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query) {
	where := " WHERE message_id = @p1 AND available_at > DATEADD(MILLISECOND, @p2, SYSUTCDATETIME())"
	args := []any{messageID, ahead.Milliseconds()}
	return Query{}, [2]Query{
		{SQL: "DELETE FROM t FROM " + table.Pending + " AS t WITH (ROWLOCK, INDEX(" + table.IndexName("scheduled") + "))" + where, Args: args},
		{SQL: "DELETE FROM t FROM " + table.Held + " AS t WITH (ROWLOCK, INDEX(" + table.IndexName("held_message") + "))" + where + " AND state = N'scheduled'", Args: args},
	}
}

// sqlserverKeyDeadlock is the number of the error that LockKeys throws when sp_getapplock
// reports a deadlock. A deadlock of row locks is error 1205.
const sqlserverKeyDeadlock = 51205

// LockKeys takes one application lock for each key, in the order of the keys' bytes.
// Producers in other languages take the same lock, so its name must not change: see
// SQLSERVER.md.
func (sqlserver) LockKeys(table Table, keys []string) []Query {
	var queries []Query
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		queries = append(queries, Query{
			SQL: `DECLARE @name nvarchar(255) = CONCAT(N'rowrelay:', OBJECT_ID(` + SQLServerObject(table, "") + `), N':', CONVERT(nvarchar(64), HASHBYTES('SHA2_256', @p1), 2));
DECLARE @got int;
EXEC @got = sp_getapplock @Resource = @name, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
IF @got = -3 THROW ` + strconv.Itoa(sqlserverKeyDeadlock) + `, N'the lock of a message''s key was chosen as a deadlock''s victim', 1;
IF @got < 0 THROW 50000, N'the lock of a message''s key was refused', 1`,
			Args: []any{key},
		})
	}
	return queries
}

// SQLServerObject returns the name of a table, or the name of an object that consists of the table's name and a suffix,
// as an SQL literal for OBJECT_ID. It doubles no quotes or brackets, because names contain none.
func SQLServerObject(table Table, suffix string) string {
	name := "[" + table.Name + suffix + "]'"
	if table.Schema != "" {
		name = "[" + table.Schema + "]." + name
	}
	return "N'" + name
}

// Notify returns nothing: SQL Server can't wake another process.
func (sqlserver) Notify(Table) []Query { return nil }

// Written sets the isolation level in a batch with a parameter. Without parameters the driver
// sends the batch differently, and SET would change the isolation level of the session, which
// the pool may later pass to other code.
func (d sqlserver) Written(table Table) Query {
	return Query{
		SQL: `SET TRANSACTION ISOLATION LEVEL ` + d.reading + `;
SELECT LOWER(CONVERT(nvarchar(36), message_id)), topic, message_key, payload, CONVERT(bit, CASE WHEN payload IS NULL THEN 1 ELSE 0 END), payload_text, headers, CONVERT(nvarchar(27), available_at, 121), CONVERT(nvarchar(27), expires_at, 121), priority FROM ` + table.Messages + ` ORDER BY id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED`,
		Args: []any{int64(0)},
	}
}

// Receive checks first whether the id exists, because with SET XACT_ABORT ON an error ends
// the transaction. It takes no range lock, which would also block neighbouring ids. So two
// concurrent transactions may both find no row, and then the second INSERT fails.
func (sqlserver) Receive(table Table, consumer, messageID string) Query {
	return Query{
		SQL: `INSERT INTO ` + table.Inbox + ` (consumer, message_id) SELECT @p1, @p2
WHERE NOT EXISTS (SELECT 1 FROM ` + table.Inbox + ` WITH (UPDLOCK, ROWLOCK) WHERE consumer = @p1 AND message_id = @p2 AND size = DATALENGTH(@p2))`,
		Args: []any{consumer, messageID},
	}
}

// Received recognises a duplicate key of a constraint or of a unique index. The error rolls
// back only the statement or, with XACT_ABORT on, the whole transaction.
func (sqlserver) Received(err error) bool { return hasNumber(err, 2627, 2601) }

// PurgeReceived sets READ COMMITTED, because READPAST is refused at the levels SERIALIZABLE and SNAPSHOT.
func (sqlserver) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return Query{
		SQL: `SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH old AS (
    SELECT TOP (@p1) * FROM ` + table.Inbox + ` WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE consumer = @p2 AND received_at < DATEADD(MILLISECOND, @p3 % 1000, DATEADD(SECOND, @p3 / 1000, SYSUTCDATETIME())) ORDER BY received_at)
DELETE FROM old`,
		Args: []any{int64(limit), consumer, -(window + time.Millisecond - 1).Milliseconds()},
	}
}

func (sqlserver) InboxVersion(table Table) Query { return inboxVersion(table) }

func (sqlserver) FixedRows(table Table) []FixedRows {
	const digits = "(VALUES (0), (1), (2), (3), (4), (5), (6), (7))"
	return []FixedRows{{
		Table: table.Lanes, Want: 64,
		Count: Query{SQL: "SELECT COUNT(*) FROM " + table.Lanes},
		Fill: Query{SQL: "INSERT INTO " + table.Lanes + " (lane) SELECT a.n * 8 + b.n FROM " + digits + " AS a (n) CROSS JOIN " + digits + " AS b (n)" +
			" WHERE NOT EXISTS (SELECT 1 FROM " + table.Lanes + " AS l WHERE l.lane = a.n * 8 + b.n)"},
	}}
}

func (sqlserver) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings + " WHERE name = N'schema'"}
}

// MakeRowIndexes creates three indexes. The first two contain only rows without a claim, one by id and
// one by priority. Relays use the third to find claims that have ended. Page locks are off: otherwise
// READPAST would skip all rows of a locked page, even the free ones, or wait for the page.
func (sqlserver) MakeRowIndexes(table Table) []Query {
	var queries []Query
	for _, index := range []struct{ suffix, definition string }{
		{"claim_id", "(id) WHERE claimed_until IS NULL"},
		{"claim_priority", "(priority DESC, id) WHERE claimed_until IS NULL"},
		{"claim_until", "(claimed_until) INCLUDE (claim_token) WHERE claimed_until IS NOT NULL"},
	} {
		queries = append(queries, Query{SQL: "IF NOT EXISTS (" + sqlserverIndexes(table) + " AND name = N'" + table.Name + "_" + index.suffix + "')" +
			"\nCREATE INDEX " + table.IndexName(index.suffix) + " ON " + table.Pending + " " + index.definition + " WITH (ALLOW_PAGE_LOCKS = OFF)"})
	}
	return queries
}

func (sqlserver) DropRowIndexes(table Table) []Query {
	var queries []Query
	for _, suffix := range []string{"claim_id", "claim_priority", "claim_until"} {
		queries = append(queries, Query{SQL: "DROP INDEX IF EXISTS " + table.IndexName(suffix) + " ON " + table.Pending})
	}
	return queries
}

func (sqlserver) RowIndexes(table Table) Query {
	name := table.Name
	return Query{SQL: "SELECT COUNT(*) FROM (" + sqlserverIndexes(table) +
		" AND name IN (N'" + name + "_claim_id', N'" + name + "_claim_priority', N'" + name + "_claim_until')) AS i"}
}

func sqlserverIndexes(table Table) string {
	return "SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(" + SQLServerObject(table, "") + ")"
}

// Busy recognises a deadlock of row locks or key locks, a lock timeout, a snapshot update
// conflict, a table that was altered while a snapshot reads it, and Azure's "service is busy".
func (sqlserver) Busy(err error) bool {
	return hasNumber(err, 1205, sqlserverKeyDeadlock, 1222, 3960, 3961, 40501)
}

// Missing recognises an invalid object name and a schema that doesn't exist.
func (sqlserver) Missing(err error) bool { return hasNumber(err, 208, 2760) }

// Denied recognises a missing privilege on an object or a column, and a missing privilege to
// create, alter or drop an object or to perform an action.
func (sqlserver) Denied(err error) bool {
	return hasNumber(err, 229, 230, 262, 297, 300, 1088, 3701, 15247)
}

// Invalid recognises an overflow, a failed conversion, a NULL, a violated constraint or unique key, and text that is too long.
func (sqlserver) Invalid(err error) bool {
	return hasNumber(err, 220, 8115, 241, 242, 245, 8114, 515, 547, 2601, 2627, 2628, 8152)
}

// Refused recognises missing privileges, syntax errors, unknown columns, OUTPUT on a table with a trigger, and session
// settings that an index or a computed column doesn't allow.
func (s sqlserver) Refused(err error) bool {
	return s.Denied(err) || hasNumber(err, 102, 156, 207, 334, 1934)
}

// TimedOut returns false: the server has a time limit only for lock waits, and Busy recognises its error.
func (sqlserver) TimedOut(error) bool { return false }

// ReadOnly recognises a read-only database, such as a secondary replica.
func (sqlserver) ReadOnly(err error) bool { return hasNumber(err, 3906) }

// hasNumber reports whether the error has one of SQL Server's error numbers. The driver's errors have a method that
// returns their number.
func hasNumber(err error, numbers ...int32) bool {
	var numbered interface{ SQLErrorNumber() int32 }
	return errors.As(err, &numbered) && slices.Contains(numbers, numbered.SQLErrorNumber())
}

// Server selects facts that every user may see. The trial reads through the index that relays
// use to lease lanes, because a read through another index wouldn't encounter the lock.
func (sqlserver) Server(table Table) (facts Query, trial *Trial) {
	facts = Query{SQL: `SELECT N'version', CONVERT(nvarchar(128), SERVERPROPERTY(N'ProductVersion'))
UNION ALL SELECT N'edition', CONVERT(nvarchar(128), SERVERPROPERTY(N'EngineEdition'))
UNION ALL SELECT N'database', DB_NAME()
UNION ALL SELECT N'level', CONVERT(nvarchar(10), compatibility_level) FROM sys.databases WHERE name = DB_NAME()
UNION ALL SELECT N'snapshot', CONVERT(nvarchar(10), snapshot_isolation_state) FROM sys.databases WHERE name = DB_NAME()
UNION ALL SELECT N'read committed snapshot', CONVERT(nvarchar(10), is_read_committed_snapshot_on) FROM sys.databases WHERE name = DB_NAME()`}
	index := "INDEX(" + table.IndexName("lanes_fence") + ")"
	return facts, &Trial{
		Begin: []Query{{SQL: "SET LOCK_TIMEOUT 1000"}},
		Hold:  Query{SQL: "SELECT lane FROM " + table.Lanes + " WITH (" + index + ", UPDLOCK, ROWLOCK) WHERE lane = 0"},
		Pass:  Query{SQL: "SELECT lane FROM " + table.Lanes + " WITH (" + index + ", UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE lane IN (0, 1)"},
		Want:  "1",
	}
}

// Fit requires that reads see a snapshot and don't wait for writers. A read that only skips locked
// rows would have no snapshot: it could skip a row that is not committed yet, and then read a later
// row of the same key that was written after the commit. On Azure, Fit doesn't check the version.
// The engine edition is 5 for Azure SQL Database, and 8 for Azure SQL Managed Instance.
func (d sqlserver) Fit(server Server) (Fit, error) {
	facts := server.Facts
	major, _, _ := strings.Cut(facts["version"], ".")
	number, err := strconv.Atoi(major)
	if azure := facts["edition"] == "5" || facts["edition"] == "8"; !azure && (err != nil || number < 13) {
		return Fit{}, fmt.Errorf("the server's version is %q: SQL Server 2016 (version 13) or later is needed, or Azure SQL", facts["version"])
	}
	if level, err := strconv.Atoi(facts["level"]); err != nil || level < 130 { // OPENJSON needs 130
		return Fit{}, fmt.Errorf("database %s has compatibility level %q: 130 or higher is needed; have its owner run ALTER DATABASE [%s] SET COMPATIBILITY_LEVEL = 130",
			facts["database"], facts["level"], facts["database"])
	}
	if !server.Skips {
		return Fit{}, fmt.Errorf("the server doesn't skip locked rows (READPAST): it must be SQL Server or Azure SQL")
	}
	switch {
	case facts["read committed snapshot"] == "1":
		d.reading = "READ COMMITTED"
	case facts["snapshot"] == "1":
		d.reading = "SNAPSHOT"
	default:
		return Fit{}, fmt.Errorf("database %s does not allow snapshot isolation: have its owner run ALTER DATABASE [%s] SET ALLOW_SNAPSHOT_ISOLATION ON, which changes nothing for other sessions",
			facts["database"], facts["database"])
	}
	return Fit{Dialect: d, Notes: []Note{{Name: "reading", OK: true, Detail: "at " + d.reading + ", from row versions"}}}, nil
}

// SQLServerList returns a list as JSON for OPENJSON, because a statement may have at most 2,100
// parameters. If the list is not empty, its JSON is padded with spaces: to 500 characters if it
// fits, otherwise to 4,001. Without the padding, the driver would declare a text of up to 4,000
// characters as an nvarchar of exactly that length, and the server would cache a plan for each
// length.
func SQLServerList[T any](items []T) string {
	text := bind.JSON(items)
	units := 0 // the length in UTF-16
	for _, r := range text {
		units++
		if r > 0xFFFF {
			units++
		}
	}
	switch {
	case len(items) == 0 || units > 4000:
		return text
	case units <= 500:
		return text + strings.Repeat(" ", 500-units)
	default:
		return text + strings.Repeat(" ", 4001-units)
	}
}
