package dialect

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
)

type oracle struct{}

// Oracle returns the dialect of Oracle Database 12.2 and later. ORACLE.md in this
// folder explains its statements.
func Oracle() Dialect { return oracle{} }

// Name returns "oracle".
func (oracle) Name() string { return "oracle" }

// Insert uses one INSERT for each row, in the order of the rows, because a single INSERT
// can't write LOBs of any size in several rows. It combines several INSERTs in one block.
// Blocks have 64, 16 or 4 rows only, because the server compiles and caches each different
// block. A statement may have only one LONG, so a row whose payload or headers are sent as a
// LONG isn't part of a block.
func (oracle) Insert(table Table, rows []Row) []Query {
	var queries []Query
	for len(rows) > 0 {
		short, n := 0, 1
		for short < min(len(rows), 64) && len(rows[short].Payload) <= OracleMaxText && len(rows[short].Headers) <= OracleMaxText {
			short++
		}
		for _, size := range []int{64, 16, 4} {
			if size <= short {
				n = size
				break
			}
		}
		var args OracleArgs
		statements := make([]string, n)
		for i, row := range rows[:n] {
			statements[i] = oracleInsert(&args, table, row)
		}
		sql := statements[0]
		if n > 1 {
			sql = "BEGIN\n    " + strings.Join(statements, ";\n    ") + ";\nEND;"
		}
		queries, rows = append(queries, Query{SQL: sql, Args: args.Args}), rows[n:]
	}
	return queries
}

// oracleInsert omits columns that are NULL. The payload is the last parameter, as a LONG must
// be. An empty payload can't be a parameter, because Oracle would store NULL.
func oracleInsert(args *OracleArgs, table Table, row Row) string {
	names, values := "message_id, topic", args.Add(row.MessageID)+", "+args.Add(row.Topic)
	add := func(name, value string) { names, values = names+", "+name, values+", "+value }
	if row.Key != "" {
		add("message_key", args.Add(row.Key))
	}
	for _, given := range []struct {
		name string
		at   time.Time
	}{{"available_at", row.AvailableAt}, {"expires_at", row.ExpiresAt}} {
		if at := moment(given.at, time.Microsecond, "2006-01-02 15:04:05.000000"); at != nil {
			add(given.name, "TO_TIMESTAMP("+args.Add(at)+", 'YYYY-MM-DD HH24:MI:SS.FF6')")
		}
	}
	if row.Priority != 0 {
		add("priority", args.Add(int64(row.Priority)))
	}
	if row.Payload != nil && len(row.Payload) == 0 {
		add("payload", "EMPTY_BLOB()")
	}
	if row.Headers != "" {
		add("headers", args.Add(row.Headers))
	}
	if len(row.Payload) > 0 {
		add("payload", args.Add(row.Payload))
	}
	return "INSERT INTO " + table.Pending + " (" + names + ") VALUES (" + values + ")"
}

// InsertIDs fails if one of the ids exists, and then inserts no ids.
func (oracle) InsertIDs(table Table, ids []string, token int64) []Query {
	var args OracleArgs
	value := args.Add(token)
	return []Query{{SQL: "INSERT INTO " + table.IDs + " (message_id, write_token) SELECT g.message_id, " + value +
		" FROM " + OracleGiven(&args, "g", ids, "message_id VARCHAR2(36) PATH '$'"), Args: args.Args}}
}

func (oracle) DeleteIDs(table Table, ids []string, token int64) []Query {
	var args OracleArgs
	given := OracleGiven(&args, "g", ids, "message_id VARCHAR2(36) PATH '$'")
	return []Query{{SQL: "DELETE FROM " + table.IDs + " WHERE message_id IN (SELECT g.message_id FROM " + given +
		") AND " + args.Add(token) + " IN (0, write_token)", Args: args.Args}}
}

// Cancel's conditions repeat the indexes' expressions, so that the server uses the indexes.
func (oracle) Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query) {
	where := " AND available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:2 / 1000000, 'SECOND')"
	args := []any{messageID, ahead.Microseconds()}
	return Query{}, [2]Query{
		{SQL: "DELETE FROM " + table.Pending + " WHERE CASE WHEN available_at IS NOT NULL THEN message_id END = :1" + where, Args: args},
		{SQL: "DELETE FROM " + table.Held + " WHERE message_id = :1" + where + " AND state = 'scheduled'", Args: args},
	}
}

// LockKeys locks one row of outbox_locks for each key, in the order of lock_id. The table has
// 1,024 rows for keys, and the key's hash selects the row (see ORACLE.md).
func (oracle) LockKeys(table Table, keys []string) []Query {
	if len(keys) == 0 {
		return nil
	}
	var args OracleArgs
	given := OracleGiven(&args, "k", keys, "message_key VARCHAR2(255) PATH '$'")
	return []Query{{SQL: `BEGIN
    FOR locked IN (
    SELECT lock_id FROM ` + table.Index("locks") + ` WHERE lock_id IN (
        SELECT 1000 + ORA_HASH(NLSSORT(k.message_key, 'NLS_SORT=BINARY'), 1023) FROM ` + given + `)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;`, Args: args.Args}}
}

// Notify returns nothing: relays don't listen on Oracle.
func (oracle) Notify(Table) []Query { return nil }

// Written selects times as text, because drivers disagree on the time zone of a TIMESTAMP, which
// stores no zone. The times in the tables are in UTC.
func (oracle) Written(table Table) Query {
	return Query{SQL: `SELECT message_id, topic, message_key, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, payload_text, headers,
    TO_CHAR(available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), priority FROM ` + table.Messages + ` ORDER BY id`}
}

func (oracle) Receive(table Table, consumer, messageID string) Query {
	return Query{SQL: "INSERT INTO " + table.Inbox + " (consumer, message_id) VALUES (:1, :2)", Args: []any{consumer, messageID}}
}

// Received recognises "unique constraint violated". The error rolls back only the statement.
func (oracle) Received(err error) bool { return hasORA(err, 1) }

func (oracle) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return Query{
		SQL: "DELETE FROM " + table.Inbox + " WHERE consumer = :1" +
			" AND received_at < SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:2 / 1000000, 'SECOND') AND ROWNUM <= :3",
		Args: []any{consumer, -window.Microseconds(), int64(limit)},
	}
}

func (oracle) InboxVersion(table Table) Query { return inboxVersion(table) }

func (oracle) FixedRows(table Table) []FixedRows {
	locks := table.Index("locks")
	fill := func(name, column, first string, count int) Query {
		return Query{SQL: "INSERT INTO " + name + " (" + column + ") SELECT n FROM (SELECT LEVEL - 1 + " + first + " AS n FROM dual CONNECT BY LEVEL <= " + strconv.Itoa(count) + ")" +
			" WHERE n NOT IN (SELECT " + column + " FROM " + name + ")"}
	}
	return []FixedRows{
		{Table: table.Lanes, Want: 64, Count: Query{SQL: "SELECT COUNT(*) FROM " + table.Lanes}, Fill: fill(table.Lanes, "lane", "0", 64)},
		{Table: locks, Want: 512, Count: Query{SQL: "SELECT COUNT(*) FROM " + locks + " WHERE lock_id < 1000"}, Fill: fill(locks, "lock_id", "0", 512)},
		{Table: locks, Want: 1024, Count: Query{SQL: "SELECT COUNT(*) FROM " + locks + " WHERE lock_id >= 1000"}, Fill: fill(locks, "lock_id", "1000", 1024)},
	}
}

func (oracle) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings + " WHERE name = 'schema'"}
}

// Oracle's indexes have no entry for a row in which all indexed expressions are NULL. So the
// first two contain only rows without a claim, and the third contains only claimed rows.
var oracleRowIndexes = []struct{ suffix, columns string }{
	{"claim_id", "CASE WHEN claimed_until IS NULL THEN id END"},
	{"claim_priority", "CASE WHEN claimed_until IS NULL THEN -priority END, CASE WHEN claimed_until IS NULL THEN id END"},
	{"claim_until", "claimed_until, claim_stamp"},
}

// MakeRowIndexes waits up to 3 seconds for producers' transactions to end, because CREATE INDEX
// needs a lock on the table. It ignores the error for an index that already exists.
func (oracle) MakeRowIndexes(table Table) []Query {
	var queries []Query
	for _, index := range oracleRowIndexes {
		queries = append(queries, oracleDDL("CREATE INDEX "+table.Index(index.suffix)+" ON "+table.Pending+" ("+index.columns+")", "-955, -1408"))
	}
	return queries
}

func (oracle) DropRowIndexes(table Table) []Query {
	var queries []Query
	for _, index := range oracleRowIndexes {
		queries = append(queries, oracleDDL("DROP INDEX "+table.Index(index.suffix), "-1418"))
	}
	return queries
}

// oracleDDL returns a block that runs the statement. The parameter done lists the error codes that
// the block ignores because they mean that the object has already been created or dropped.
func oracleDDL(statement, done string) Query {
	return Query{SQL: `DECLARE code NUMBER;
BEGIN
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';
    EXECUTE IMMEDIATE '` + statement + `';
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
EXCEPTION WHEN OTHERS THEN
    code := SQLCODE;
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
    IF code NOT IN (` + done + `) THEN RAISE; END IF;
END;`}
}

func (oracle) RowIndexes(table Table) Query {
	names := make([]string, len(oracleRowIndexes))
	for i, index := range oracleRowIndexes {
		names[i] = "'" + OracleName(table.Name+"_"+index.suffix) + "'"
	}
	return Query{SQL: "SELECT COUNT(*) FROM all_indexes WHERE owner = " + OracleOwner(table) +
		" AND index_name IN (" + strings.Join(names, ", ") + ")"}
}

// OracleName returns a name in the form in which Oracle's catalog stores it.
func OracleName(name string) string {
	if (Table{}).quoted(name) != name {
		return name
	}
	return strings.ToUpper(name)
}

// OracleOwner returns an SQL expression for the owner of a table, as Oracle's catalog stores it.
func OracleOwner(table Table) string {
	if table.Schema == "" {
		return "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')"
	}
	return "'" + OracleName(table.Schema) + "'"
}

// Busy recognises "resource busy", a deadlock, a serialization failure, and timeouts of waits
// for a row or for an object.
func (oracle) Busy(err error) bool { return hasORA(err, 54, 60, 8177, 30006, 4021) }

// Missing recognises a table, view or user that doesn't exist. The server also reports a system
// view as missing if the user may not see it.
func (oracle) Missing(err error) bool { return hasORA(err, 942, 1435, 1918) }

// Denied recognises missing privileges, including those on a tablespace; an exceeded quota; and
// the error with which newer servers refuse a statement on an object that the user may see but
// not use in this way.
func (oracle) Denied(err error) bool { return hasORA(err, 1031, 1950, 1536, 41900) }

// Invalid recognises a violated constraint (unique, NOT NULL, CHECK, foreign key) and a value that is too large, too long or
// malformed.
func (oracle) Invalid(err error) bool {
	return hasORA(err, 1, 1400, 2290, 2291, 2292, 1401, 1426, 1438, 12899, 1461, 1722, 1839, 1841, 1843, 1847, 1861)
}

// Refused recognises missing privileges, syntax errors, unknown columns, and views and columns that can't be changed.
func (o oracle) Refused(err error) bool {
	return o.Denied(err) || hasORA(err, 900, 904, 905, 933, 936, 1732, 1733, 28115)
}

// TimedOut recognises an exceeded limit of a resource plan, and a cancelled statement.
func (oracle) TimedOut(err error) bool { return hasORA(err, 40, 1013) }

// ReadOnly recognises a database that is open for reading only, such as a standby.
func (oracle) ReadOnly(err error) bool { return hasORA(err, 16000) }

// Made recognises a name that is already used, columns that already have an index, and a row or
// a column that already exists. A migration may also drop an index or a primary key in order to
// create it again. If the migration is repeated, the DROP may fail because the first run has
// already dropped the object; Made also recognises this error.
func (oracle) Made(err error) bool { return hasORA(err, 955, 1408, 1, 1430, 1418, 2441) }

// Gone recognises a table, view, column, index or other object that doesn't exist. The
// rollback of a migration may create a primary key again. So Gone also recognises the
// error for a primary key that already exists.
func (oracle) Gone(err error) bool { return hasORA(err, 904, 942, 1418, 4043, 2260) }

var oraCode = regexp.MustCompile(`\bORA-(\d+)`)

// hasORA reports whether the error has one of the codes. One driver's errors have a method that
// returns a code. With every driver the error's text contains the code; after an error in a block it
// contains several codes.
func hasORA(err error, codes ...int) bool {
	if err == nil {
		return false
	}
	var coded interface{ Code() int }
	if errors.As(err, &coded) && slices.Contains(codes, coded.Code()) {
		return true
	}
	return slices.ContainsFunc(oraCode.FindAllStringSubmatch(err.Error(), -1), func(found []string) bool {
		code, err := strconv.Atoi(found[1])
		return err == nil && slices.Contains(codes, code)
	})
}

// Server selects the version, the setting NLS_COMP, and the database's character set. The query
// needs no privilege. The trial is nil, because all supported versions have SKIP LOCKED.
func (oracle) Server(Table) (facts Query, trial *Trial) {
	return Query{SQL: `SELECT 'version', MAX(version) FROM product_component_version WHERE product LIKE 'Oracle%'
UNION ALL SELECT LOWER(parameter), value FROM nls_session_parameters WHERE parameter = 'NLS_COMP'
UNION ALL SELECT LOWER(parameter), value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET'`}, nil
}

// Fit refuses versions before 12.2.
func (o oracle) Fit(server Server) (Fit, error) {
	version, set, comparison := server.Facts["version"], server.Facts["nls_characterset"], server.Facts["nls_comp"]
	if versionBefore(version, "12.2") {
		return Fit{}, fmt.Errorf("the server is Oracle Database %s: 12.2 or later is needed", version)
	}
	return Fit{Dialect: o, Notes: []Note{
		{Name: "server", OK: true, Detail: "Oracle Database " + version},
		{Name: "characters", OK: set == "AL32UTF8" || set == "UTF8", Detail: "the database stores text in " + set,
			Hint: "topics, keys and headers must use only characters of this set; payloads may have any bytes"},
		{Name: "comparison", OK: comparison == "BINARY", Detail: "NLS_COMP is " + comparison,
			Hint: "leave NLS_COMP at BINARY for this user: otherwise relay names that differ only in case may count as the same, and indexes on names are not used"},
	}}, nil
}

// OracleMaxText is the maximum length of a text parameter in bytes. Drivers send a longer text
// as a LONG, which a statement can store in a column but not use in an expression.
const OracleMaxText = 4000

// OracleArgs collects the arguments of a statement. Drivers bind them by position, so add the
// arguments in the order of their placeholders in the text, and use each placeholder once.
type OracleArgs struct{ Args []any }

// Add adds a value and returns its placeholder.
func (o *OracleArgs) Add(value any) string {
	o.Args = append(o.Args, value)
	return ":" + strconv.Itoa(len(o.Args))
}

// OracleGiven returns a JSON_TABLE for a FROM clause. Its rows are the list's items, in the
// given columns. The list is passed as JSON in one or more parameters that are short enough
// for a VARCHAR2. The number of parameters is a power of two, so that there are few
// different statements.
func OracleGiven[T any](o *OracleArgs, alias string, items []T, columns string) string {
	var parts []string
	for text := bind.JSON(items); text != "" || len(parts)&(len(parts)-1) != 0; {
		part := OracleCut(text)
		parts, text = append(parts, part), text[len(part):]
	}
	source := o.Add(parts[0])
	if len(parts) > 1 {
		source = "TO_CLOB(" + source + ")"
	}
	for _, part := range parts[1:] {
		source += " || TO_CLOB(" + o.Add(part) + ")"
	}
	return "JSON_TABLE(" + source + ", '$[*]' COLUMNS (" + columns + ")) " + alias
}

// OracleCut returns the longest prefix of the text that fits in one parameter. It doesn't split
// a character.
func OracleCut(text string) string {
	if len(text) <= OracleMaxText {
		return text
	}
	end := OracleMaxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
