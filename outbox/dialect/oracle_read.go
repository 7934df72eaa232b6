package dialect

import (
	"strconv"
	"strings"
)

// oracleAsBytes is the head of a statement that selects payloads: SQL alone turns
// no CLOB into a BLOB.
const oracleAsBytes = `WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
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
	oraclePlain = `t.id, t.lane, t.message_id, t.topic, t.message_key,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6')`
	oracleHasPayload = `CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END`
	oracleLater    = `CASE WHEN t.available_at > ` + oracleNow + ` THEN 2 ELSE 0 END`
	oracleRetrying = `CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END`
	oracleHot      = oraclePlain + ",\n    " + oracleHasPayload + " + " + oracleLater
	oracleHeld     = oraclePlain + ",\n    " + oracleHasPayload + " + " + oracleRetrying
	oracleNone     = `0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at`
	oracleColumns = `id, lane, message_id, topic, message_key, payload, payload_text, headers, available_at, priority, attempts, crashes, created_at`
	oracleSize    = `NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)`
)

// oracleGiven is the highest id that can be seen. The sequence knows more, but
// shows only up to where it has reserved.
func oracleGiven(table Table) string {
	highest := func(of string) string { return "NVL((SELECT MAX(id) FROM " + of + "), 0)" }
	return "GREATEST(" + highest(table.Hot()) + ", " + highest(table.Held()) + ", " + highest(table.Done()) + ")"
}

// oracleServer names the database, and the one in it; it has no blanks, and no
// right is needed to see it.
const oracleServer = "SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME')"

func (oracle) Given(table Table) Query {
	return Query{SQL: "SELECT " + oracleGiven(table) + " FROM dual"}
}

// Read puts everything in order once it has chosen the rows, of which there are
// few then.
func (oracle) Read(table Table, read Read) Query {
	share := read.Limit
	if read.Share > 0 {
		share = min(share, read.Share)
	}
	var a oracleArgs
	rows := a.page("SELECT t.*, p.place FROM ("+a.ranges(table, read.Positions, read.Limit, share)+") p\n    JOIN "+table.Hot()+" t ON t.ROWID = p.rid",
		"t.place, t.id", read.MaxBytes)
	return a.query(
		oracleAsBytes,
		"SELECT t.line, "+oracleHot,
		oracleOrdered("SELECT -1 AS place, "+oracleGiven(table)+" || ' 0 0 0 ' || "+oracleServer+" AS line,"+
			"\n    "+oracleNone+" FROM dual"+
			"\nUNION ALL"+
			"\nSELECT t.place, NULL, "+prefixed(oracleColumns, "t.")+"\n"+rows,
			"place, id", ""))
}

// oracleOrdered is a FROM of rows, as t, that are in order before what is selected
// of them is computed: the count of rows keeps the two apart. What as_bytes
// returns shall not wait in a sort.
func oracleOrdered(rows, order, where string) string {
	return "FROM (SELECT r.*, ROWNUM AS n FROM (\n" + rows + "\nORDER BY " + order + ") r" + where + ") t"
}

// ranges selects the place and rowid of one range of the index after the other.
// Each is cut off where it has its share, and all where they have the limit: a
// count of rows stops what is under it.
func (a *oracleArgs) ranges(table Table, positions []Position, limit, share int) string {
	if len(positions) == 0 {
		return "SELECT 0 AS place, h.ROWID AS rid FROM " + table.Hot() + " h WHERE 1 = 0"
	}
	parts := make([]string, len(positions))
	for i, p := range positions {
		parts[i] = "SELECT " + strconv.Itoa(i) + " AS place, rid FROM (SELECT /*+ INDEX_ASC(h " + table.IndexName("lane_id") + ") */ h.ROWID AS rid FROM " + table.Hot() + " h" +
			" WHERE h.lane = " + a.int(p.Lane) + " AND h.id > " + a.add(p.After) + " AND h.id <= " + a.add(p.Until)
		if p.Key != "" {
			parts[i] += " AND " + oracleSame("h.message_key", a.add(p.Key))
		}
		parts[i] += " ORDER BY h.id) WHERE ROWNUM <= " + a.int(share)
	}
	return "\n    SELECT place, rid FROM (\n    " + strings.Join(parts, "\n    UNION ALL\n    ") + "\n    ) WHERE ROWNUM <= " + a.int(limit)
}

// page cuts off what comes after the row that crosses the bound.
func (a *oracleArgs) page(rows, order string, maxBytes int) string {
	if maxBytes <= 0 {
		return "FROM (" + rows + ") t"
	}
	return "FROM (SELECT t.*, SUM(" + oracleSize + ") OVER (ORDER BY " + order + " ROWS UNBOUNDED PRECEDING) - (" + oracleSize + ") AS bytes_before" +
		"\nFROM (" + rows + ") t) t WHERE t.bytes_before < " + a.int(maxBytes)
}

func (oracle) Candidates(table Table, positions []Position, _ []string, limit int) Query {
	var a oracleArgs
	return a.query("SELECT t.id, t.lane, t.topic, t.message_key, "+oracleSize,
		"FROM ("+a.ranges(table, positions, limit, limit)+") p",
		"JOIN "+table.Hot()+" t ON t.ROWID = p.rid ORDER BY p.place, t.id")
}

func (oracle) Pick(table Table, lanes []int, ids []int64) Query {
	return oraclePicked(oracleHot, table.Hot(), "", lanes, ids)
}

func (oracle) PickHeld(table Table, lanes []int, ids []int64) Query {
	return oraclePicked(oracleHeld, table.Held(), " AND t.state <> 'error'", lanes, ids)
}

func oraclePicked(columns, from, condition string, lanes []int, ids []int64) Query {
	var a oracleArgs
	items := make([][]int64, len(ids))
	for i, id := range ids {
		items[i] = []int64{int64(lanes[i]), id}
	}
	return a.query(
		oracleAsBytes,
		"SELECT "+columns,
		"FROM "+a.given("g", items, "lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]'"),
		"JOIN "+from+" t ON t.id = g.id AND t.lane = g.lane"+condition)
}

// The columns of the indexes of held rows, of a table t: those that may come
// back, those that hold their key, and those that are parked.
const (
	oracleDueAt   = "CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END"
	oracleDueID   = "CASE WHEN t.state <> 'error' THEN t.id END"
	oracleRetry   = "CASE WHEN t.state = 'retry' THEN t.lane END"
	oracleRetryOf = "CASE WHEN t.state = 'retry' THEN t.message_key END"
	oracleErrorID = "CASE WHEN t.state = 'error' THEN t.id END"
)

// Due compares a row without a time as one of the first of days.
func (oracle) Due(table Table, lanes []int, after After, limit, maxBytes int) Query {
	var a oracleArgs
	rows := "SELECT * FROM (SELECT t.* FROM " + table.Held() + " t" +
		"\n    WHERE " + oracleDueAt + " <= " + oracleNow + " AND t.lane IN " + a.lanes(lanes) +
		"\n        AND " + oracleDueAt + " >= " + a.timestamp(after.At) + " AND (" + oracleDueAt + " > " + a.timestamp(after.At) + " OR " + oracleDueID + " > " + a.add(after.ID) + ")" +
		"\n    ORDER BY " + oracleDueAt + ", " + oracleDueID + ") WHERE ROWNUM <= " + a.int(limit)
	return a.query(
		oracleAsBytes,
		"SELECT "+oracleHeld,
		oracleOrdered("SELECT t.* "+a.page(rows, oracleDueAt+", "+oracleDueID, maxBytes), oracleDueAt+", "+oracleDueID, ""))
}

func (oracle) HeldKeys(table Table, lanes []int, limit int) Query {
	var a oracleArgs
	return a.query(
		"SELECT t.lane, t.message_key, t.topic, t.id FROM "+table.Held()+" t",
		"WHERE "+oracleRetry+" IN "+a.lanes(lanes)+" AND t.message_key IS NOT NULL AND ROWNUM <= "+a.int(limit))
}

func (oracle) HeldAmong(table Table, lanes []int, keys []string) Query {
	var a oracleArgs
	items := make([][]any, len(keys))
	for i, key := range keys {
		items[i] = []any{lanes[i], key}
	}
	return a.query(
		"SELECT /*+ LEADING(g) USE_NL(t) INDEX(t "+table.IndexName("held_retry")+") */ t.lane, MIN(t.message_key), MIN(t.topic), MIN(t.id)",
		"FROM "+a.given("g", items, "lane NUMBER PATH '$[0]', message_key VARCHAR2(255) PATH '$[1]'"),
		"JOIN "+table.Held()+" t ON "+oracleRetry+" = g.lane AND "+oracleSame(oracleRetryOf, "g.message_key"),
		"GROUP BY t.lane, "+oracleBytes("t.message_key")+", "+oracleBytes("t.topic"))
}
