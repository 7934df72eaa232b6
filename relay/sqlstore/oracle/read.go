package oracle

import (
	"context"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// asBytes is the head of a statement that selects payloads: SQL alone turns
// no CLOB into a BLOB.
const asBytes = `WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;`

// The columns of a row, as Reading has them, of a table or subquery t; and what
// stands in their place where there is no row.
const (
	plain = `t.id, t.lane, t.message_id, t.topic, t.message_key,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6')`
	hasPayload = `CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END`
	later    = `CASE WHEN t.available_at > ` + now + ` THEN 2 ELSE 0 END`
	retrying = `CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END`
	hot      = plain + ",\n    " + hasPayload + " + " + later
	held     = plain + ",\n    " + hasPayload + " + " + retrying
	none     = `0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at`
	columns = `id, lane, message_id, topic, message_key, payload, payload_text, headers, available_at, priority, attempts, crashes, created_at`
	size    = `NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)`
)

// given is the highest id that can be seen. The sequence knows more, but
// shows only up to where it has reserved.
func given(table dialect.Table) string {
	highest := func(of string) string { return "NVL((SELECT MAX(id) FROM " + of + "), 0)" }
	return "GREATEST(" + highest(table.Hot) + ", " + highest(table.Held) + ", " + highest(table.Done) + ")"
}

// server names the database, and the one in it; it has no blanks, and no
// right is needed to see it.
const server = "SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME')"

func (d *Oracle) lastID() backend.Query {
	return backend.Query{SQL: "SELECT " + given(d.table) + " FROM dual"}
}

// page puts everything in order once it has chosen the rows, of which there are
// few then.
func (d *Oracle) page(read backend.Read) backend.Query {
	share := read.Limit
	if read.Share > 0 {
		share = min(share, read.Share)
	}
	var a args
	rows := a.page("SELECT t.*, p.place FROM ("+a.ranges(d.table, read.Positions, read.Limit, share)+") p\n    JOIN "+d.table.Hot+" t ON t.ROWID = p.rid",
		"t.place, t.id", read.MaxBytes)
	return a.query(
		asBytes,
		"SELECT t.line, "+hot,
		ordered("SELECT -1 AS place, "+given(d.table)+" || ' 0 0 0 ' || "+server+" AS line,"+
			"\n    "+none+" FROM dual"+
			"\nUNION ALL"+
			"\nSELECT t.place, NULL, "+backend.Of("t", columns)+"\n"+rows,
			"place, id", ""))
}

// ordered is a FROM of rows, as t, that are in order before what is selected
// of them is computed: the count of rows keeps the two apart. What as_bytes
// returns shall not wait in a sort.
func ordered(rows, order, where string) string {
	return "FROM (SELECT r.*, ROWNUM AS n FROM (\n" + rows + "\nORDER BY " + order + ") r" + where + ") t"
}

// ranges selects the place and rowid of one range of the index after the other.
// Each is cut off where it has its share, and all where they have the limit: a
// count of rows stops what is under it.
func (a *args) ranges(table dialect.Table, positions []relay.Position, limit, share int) string {
	if len(positions) == 0 {
		return "SELECT 0 AS place, h.ROWID AS rid FROM " + table.Hot + " h WHERE 1 = 0"
	}
	parts := make([]string, len(positions))
	for i, p := range positions {
		parts[i] = "SELECT " + strconv.Itoa(i) + " AS place, rid FROM (SELECT /*+ INDEX_ASC(h " + table.IndexName("lane_id") + ") */ h.ROWID AS rid FROM " + table.Hot + " h" +
			" WHERE h.lane = " + a.int(p.Lane) + " AND h.id > " + a.add(p.After) + " AND h.id <= " + a.add(p.Until)
		if p.Key != "" {
			parts[i] += " AND " + same("h.message_key", a.add(p.Key))
		}
		parts[i] += " ORDER BY h.id) WHERE ROWNUM <= " + a.int(share)
	}
	return "\n    SELECT place, rid FROM (\n    " + strings.Join(parts, "\n    UNION ALL\n    ") + "\n    ) WHERE ROWNUM <= " + a.int(limit)
}

// page cuts off what comes after the row that crosses the bound.
func (a *args) page(rows, order string, maxBytes int) string {
	if maxBytes <= 0 {
		return "FROM (" + rows + ") t"
	}
	return "FROM (SELECT t.*, SUM(" + size + ") OVER (ORDER BY " + order + " ROWS UNBOUNDED PRECEDING) - (" + size + ") AS bytes_before" +
		"\nFROM (" + rows + ") t) t WHERE t.bytes_before < " + a.int(maxBytes)
}

func (d *Oracle) candidates(positions []relay.Position, _ []string, limit int) backend.Query {
	var a args
	return a.query("SELECT t.id, t.lane, t.topic, t.message_key, "+size,
		"FROM ("+a.ranges(d.table, positions, limit, limit)+") p",
		"JOIN "+d.table.Hot+" t ON t.ROWID = p.rid ORDER BY p.place, t.id")
}

func (d *Oracle) pickHot(rows []relay.RowID) backend.Query {
	return picked(hot, d.table.Hot, "", rows)
}

func (d *Oracle) pickHeld(rows []relay.RowID) backend.Query {
	return picked(held, d.table.Held, " AND t.state <> 'error'", rows)
}

func picked(columns, from, condition string, rows []relay.RowID) backend.Query {
	var a args
	items := backend.Column(rows, func(row *relay.RowID) []int64 { return []int64{int64(row.Lane), row.ID} })
	return a.query(
		asBytes,
		"SELECT "+columns,
		"FROM "+a.given("g", items, "lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]'"),
		"JOIN "+from+" t ON t.id = g.id AND t.lane = g.lane"+condition)
}

// The columns of the indexes of held rows, of a table t: those that may come
// back, those that hold their key, and those that are parked.
const (
	dueAt   = "CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END"
	dueID   = "CASE WHEN t.state <> 'error' THEN t.id END"
	retry   = "CASE WHEN t.state = 'retry' THEN t.lane END"
	retryOf = "CASE WHEN t.state = 'retry' THEN t.message_key END"
	errorID = "CASE WHEN t.state = 'error' THEN t.id END"
)

// Due implements [backend.Pages]. It compares a row without a time as one of the first of
// days.
func (d *Oracle) Due(ctx context.Context, lanes []int, after relay.DueCursor, limit, maxBytes int) ([]relay.Row, error) {
	var a args
	rows := "SELECT * FROM (SELECT t.* FROM " + d.table.Held + " t" +
		"\n    WHERE " + dueAt + " <= " + now + " AND t.lane IN " + a.lanes(lanes) +
		"\n        AND " + dueAt + " >= " + a.timestamp(after.At) + " AND (" + dueAt + " > " + a.timestamp(after.At) + " OR " + dueID + " > " + a.add(after.ID) + ")" +
		"\n    ORDER BY " + dueAt + ", " + dueID + ") WHERE ROWNUM <= " + a.int(limit)
	return backend.ReadHeld(ctx, d.db, a.query(
		asBytes,
		"SELECT "+held,
		ordered("SELECT t.* "+a.page(rows, dueAt+", "+dueID, maxBytes), dueAt+", "+dueID, "")), maxBytes)
}

// BlockedKeys implements [backend.Pages].
func (d *Oracle) BlockedKeys(ctx context.Context, lanes []int, limit int) ([]relay.BlockedKey, error) {
	var a args
	return backend.BlockedKeys(ctx, d.db, a.query(
		"SELECT t.lane, t.message_key, t.topic, t.id FROM "+d.table.Held+" t",
		"WHERE "+retry+" IN "+a.lanes(lanes)+" AND t.message_key IS NOT NULL AND ROWNUM <= "+a.int(limit)))
}

// BlockedAmong implements [backend.Pages].
func (d *Oracle) BlockedAmong(ctx context.Context, keys []relay.LaneKey) ([]relay.BlockedKey, error) {
	var a args
	items := make([][]any, len(keys))
	for i, key := range keys {
		items[i] = []any{key.Lane, key.Key}
	}
	return backend.BlockedKeys(ctx, d.db, a.query(
		"SELECT /*+ LEADING(g) USE_NL(t) INDEX(t "+d.table.IndexName("held_retry")+") */ t.lane, MIN(t.message_key), MIN(t.topic), MIN(t.id)",
		"FROM "+a.given("g", items, "lane NUMBER PATH '$[0]', message_key VARCHAR2(255) PATH '$[1]'"),
		"JOIN "+d.table.Held+" t ON "+retry+" = g.lane AND "+same(retryOf, "g.message_key"),
		"GROUP BY t.lane, "+bytes("t.message_key")+", "+bytes("t.topic")))
}
