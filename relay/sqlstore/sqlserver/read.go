package sqlserver

import (
	"context"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// The columns of a row, as Reading has them, of a table or subquery t; and what
// stands in their place where there is no row. A text is sent as it is kept:
// older servers can't make UTF-8 of it. Times say that they are in UTC, as the
// driver may have been told to take them for those of another zone.
const (
	plain = `t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''),
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00')`
	payload  = `CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END`
	later    = `CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END`
	retrying = `CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END`
	hot      = plain + ",\n    " + payload + " + " + later
	held     = plain + ",\n    " + payload + " + " + retrying
	none     = `CONVERT(bigint, 0), CONVERT(smallint, 0), N'', N'', N'', CONVERT(varbinary(max), NULL), N'', CONVERT(datetimeoffset(7), NULL), CONVERT(smallint, 0), 0, 0, CONVERT(datetimeoffset(7), NULL), 0`

	size = `COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0)`
)

// given is what the sequence gave last. One that this user can't see
// counts as new, which a check tells.
func given(table dialect.Table) string {
	return "COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(" + literal(table, "_id") + ")), 0)"
}

func (d *SQLServer) lastID() backend.Query {
	return backend.Query{SQL: "SELECT " + given(d.table)}
}

// server tells one run of a server, and one copy of the database, from
// another, as far as every user can see it; tempdb is made at each start.
const server = `REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_')`

// page says in its order what it relies on: without ORDER BY a join may return
// rows as their pages come from the disk.
func (d *SQLServer) page(read backend.Read) backend.Query {
	var a args
	share := read.Limit
	if read.Share > 0 {
		share = min(share, read.Share)
	}
	positions := positionTable(&a, read.Positions)
	return d.after(positions+
		"DECLARE @first nvarchar(500) = CONCAT("+given(d.table)+", N' 0 0 0 ', "+server+");\n", d.read(&a,
		"SELECT "+names+" FROM (",
		"SELECT @first AS line, -1 AS n, "+named(none),
		"UNION ALL",
		"SELECT NULL, t.n, "+hot,
		"FROM "+page(&a, ranges(&a, d.table, read.Positions, "*", share, read.Limit), "t.n, t.id", read.MaxBytes),
		") AS page ORDER BY n, id"))
}

// after is the query, once the preparations are made.
func (d *SQLServer) after(preparations string, query backend.Query) backend.Query {
	query.SQL = preparations + query.SQL
	return query
}

// The names of the first line and of a row's columns.
const names = "line, id, lane, message_id, topic, message_key, payload, headers, available_at, priority, attempts, crashes, created_at, flags"

// named gives the columns of no row their names.
func named(columns string) string {
	names := strings.Split(names, ", ")[1:]
	var named strings.Builder
	depth, at := 0, 0
	for _, r := range columns + "," {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			named.WriteString(" AS " + names[at])
			at++
		}
		named.WriteRune(r)
	}
	return strings.TrimSuffix(named.String(), ",")
}

// page is a FROM of rows, as t; it cuts off what comes after the row
// that crosses the bound.
func page(a *args, rows, order string, maxBytes int) string {
	if maxBytes <= 0 {
		return "(" + rows + ") AS t"
	}
	return "(SELECT t.*, SUM(" + size + ") OVER (ORDER BY " + order + " ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
		"\nFROM (" + rows + ") AS t) AS t WHERE t.bytes_before < " + a.int(maxBytes)
}

// positionTable makes a table of the positions, whose number n is known to
// be unique, so that their order and that of the rows make up the page's.
func positionTable(a *args, positions []relay.Position) string {
	items := make([][]any, len(positions))
	for i, p := range positions {
		items[i] = []any{i, p.Lane, p.After, p.Until, backend.Nullable(p.Key)}
	}
	return "SET NOCOUNT ON;\n" +
		"DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) " + binary + ");\n" +
		"INSERT INTO @positions (n, lane, after, until, message_key)\n" +
		"SELECT n, lane, after, until, message_key FROM OPENJSON(" + list(a, items) + ")\n" +
		"    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');\n"
}

// ranges selects rows from one range of the key after the other. Blanks
// at the end of a key don't count for =. A seek is forced but beside a condition on
// the key, from which the lane is computed: there the optimizer may write the lane out,
// simplify it, and find no such plan any more (error 8622).
func ranges(a *args, table dialect.Table, positions []relay.Position, columns string, share, limit int) string {
	hint, key := "FORCESEEK", ""
	if len(positions) > 0 && positions[0].Key != "" {
		hint, key = "INDEX(1)", " AND h.message_key = p.message_key AND DATALENGTH(h.message_key) = DATALENGTH(p.message_key)"
	}
	return "SELECT TOP (" + a.int(limit) + ") p.n, h.* FROM @positions AS p" +
		"\nCROSS APPLY (SELECT TOP (" + a.int(share) + ") " + columns + " FROM " + table.Hot + " AS h WITH (" + hint + ")" +
		"\n    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until" + key + " ORDER BY h.id) AS h ORDER BY p.n, h.id"
}

func (d *SQLServer) candidates(positions []relay.Position, _ []string, limit int) backend.Query {
	var a args
	columns := "h.id, h.lane, h.topic, h.message_key, COALESCE(DATALENGTH(h.payload), DATALENGTH(h.payload_text), 0) AS bytes"
	return d.after(positionTable(&a, positions), d.read(&a,
		"SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, N''), t.bytes",
		"FROM ("+ranges(&a, d.table, positions, columns, limit, limit)+") AS t ORDER BY t.n, t.id"))
}

func (d *SQLServer) pickHot(rows []relay.RowID) backend.Query {
	return d.pick(hot, d.table.Hot, "", rows)
}

func (d *SQLServer) pickHeld(rows []relay.RowID) backend.Query {
	return d.pick(held, d.table.Held, " AND t.state <> N'error'", rows)
}

func (d *SQLServer) pick(columns, from, condition string, rows []relay.RowID) backend.Query {
	items := backend.Column(rows, func(row *relay.RowID) [2]int64 { return [2]int64{int64(row.Lane), row.ID} })
	var a args
	return d.read(&a,
		"SELECT "+columns,
		"FROM OPENJSON("+list(&a, items)+") WITH (lane smallint '$[0]', id bigint '$[1]') AS g",
		"INNER JOIN "+from+" AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id"+condition,
		"OPTION (FORCE ORDER, LOOP JOIN)")
}

// Due implements [backend.Pages].
func (d *SQLServer) Due(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) ([]relay.Row, error) {
	var a args
	at := a.time(after.At)
	rows := "SELECT TOP (" + a.int(limit) + ") * FROM " + d.table.Held + " AS h" +
		"\n    WHERE h.state <> N'error' AND h.due_at <= SYSUTCDATETIME() AND h.lane IN " + laneList(&a, lanes) +
		"\n        AND h.due_at >= " + at + " AND (h.due_at > " + at + " OR h.id > " + a.add(after.ID) + ")" +
		"\n    ORDER BY h.due_at, h.id"
	return backend.ReadHeld(ctx, d.db, d.read(&a,
		"SELECT "+held,
		"FROM "+page(&a, rows, "t.due_at, t.id", maxBytes)+" ORDER BY t.due_at, t.id"), maxBytes)
}

// BlockedKeys implements [backend.Pages].
func (d *SQLServer) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]relay.BlockedKey, error) {
	var a args
	return backend.BlockedKeys(ctx, d.db, d.read(&a,
		"SELECT TOP ("+a.int(limit)+") lane, message_key, topic, id FROM "+d.table.Held,
		"WHERE state = N'retry' AND DATALENGTH(message_key) > 0 AND lane IN "+laneList(&a, lanes)))
}

// BlockedAmong implements [backend.Pages]. It numbers the keys, as blanks at the end of one
// don't count for = and GROUP BY.
func (d *SQLServer) BlockedAmong(ctx context.Context, keys []relay.LaneKey) ([]relay.BlockedKey, error) {
	var a args
	items := make([][]any, len(keys))
	for i, key := range keys {
		items[i] = []any{i, key.Lane, key.Key}
	}
	return backend.BlockedKeys(ctx, d.db, d.read(&a,
		"SELECT MIN(t.lane), MIN(t.message_key), t.topic, MIN(t.id)",
		"FROM OPENJSON("+list(&a, items)+") WITH (n int '$[0]', lane smallint '$[1]', message_key nvarchar(255) '$[2]') AS g",
		"INNER JOIN "+d.table.Held+" AS t WITH (INDEX ("+d.table.IndexName("held_retry")+"), FORCESEEK) ON t.state = N'retry' AND t.lane = g.lane",
		"    AND t.message_key = g.message_key "+binary+" AND DATALENGTH(t.message_key) = DATALENGTH(g.message_key)",
		"GROUP BY g.n, t.topic OPTION (FORCE ORDER, LOOP JOIN)"))
}
