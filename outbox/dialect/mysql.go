package dialect

import (
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mysql is the dialect of MySQL and MariaDB.
type mysql struct {
	flavour flavour

	// skipLocked reports whether a locking SELECT can skip rows that other transactions
	// have locked. If it can't, only one relay at a time can lease lanes or claim rows.
	skipLocked bool
}

type flavour string

const (
	flavourMySQL   flavour = "mysql"
	flavourMariaDB flavour = "mariadb"
)

// MySQL returns the dialect of MySQL 8.0.13 and later.
func MySQL() Dialect { return mysql{flavourMySQL, true} }

// MariaDB returns the dialect of MariaDB 10.5 and later. A store detects whether the
// server can skip locked rows, as MariaDB 10.6 and later can.
func MariaDB() Dialect { return mysql{flavourMariaDB, true} }

// SkipsLocked reports whether d is the dialect of a MySQL or MariaDB server on which a locking
// SELECT can skip rows that other transactions have locked. It is false for other databases.
func SkipsLocked(d Dialect) bool {
	m, ok := d.(mysql)
	return ok && m.skipLocked
}

// Name returns "mysql" or "mariadb".
func (d mysql) Name() string { return string(d.flavour) }

// Insert limits a statement to 1 MiB of payload. By default, old servers accept packets of at
// most 4 MiB, and a driver that writes arguments into the SQL text may double a payload's
// length.
func (mysql) Insert(table Table, rows []Row) []Query {
	const maxBytes, maxParameters = 1 << 20, 65535
	return insertValues(table.Backquoted(), insertColumns(rows, time.Microsecond, "2006-01-02 15:04:05.000000"), rows, maxParameters, maxBytes)
}

// InsertIDs uses IGNORE to skip existing ids. IGNORE also hides other errors, but these two
// values can cause no other error than a duplicate key.
func (mysql) InsertIDs(table Table, ids []string, token int64) (queries []Query) {
	value := ",(?," + strconv.FormatInt(token, 10) + ")"
	for part := range slices.Chunk(ids, mysqlMaxIDs) {
		queries = append(queries, Query{
			SQL:  "INSERT IGNORE INTO " + table.Backquoted().IDs + " (message_id, write_token) VALUES " + strings.Repeat(value, len(part))[1:],
			Args: anys(part),
		})
	}
	return queries
}

func (mysql) DeleteIDs(table Table, ids []string, token int64) (queries []Query) {
	for part := range slices.Chunk(ids, mysqlMaxIDs) {
		queries = append(queries, Query{
			SQL: "DELETE FROM " + table.Backquoted().IDs + " WHERE message_id IN (" + strings.Repeat(",?", len(part))[1:] +
				") AND " + strconv.FormatInt(token, 10) + " IN (0, write_token)",
			Args: anys(part),
		})
	}
	return queries
}

// mysqlMaxIDs is the maximum number of ids in one statement. With a much longer list, servers
// scan the whole table.
const mysqlMaxIDs = 1000

func anys(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}

// Cancel first finds the row with a SELECT that takes no locks. At REPEATABLE READ, a DELETE
// by message_id that finds no row would lock the gap in the index, and so block INSERTs of
// other transactions. A DELETE by the complete primary key of an existing row locks only that
// row. Without FORCE INDEX, MariaDB would use another index. The sinks column of a scheduled
// row is always empty.
//
// The pending table has no index on message_id: MySQL has no partial indexes, and an additional
// index made INSERTs 4 to 9 % slower on MariaDB. So the SELECT reads the whole pending table if
// the message isn't in the held table. While the relays keep up, the pending table is short,
// because a relay soon moves a scheduled message to the held table.
func (mysql) Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query) {
	table = table.Backquoted()
	later := " AND available_at > utc_timestamp(6) + INTERVAL " + strconv.FormatInt(ahead.Microseconds(), 10) + " MICROSECOND"
	const at = " AS t FORCE INDEX (PRIMARY) WHERE lane = ? AND id = ? AND message_id = ?"
	held := " FROM " + table.Held + " WHERE message_id = ? AND state = 'scheduled'" + later
	find = Query{
		SQL: "SELECT 1, lane, id" + held + " UNION ALL SELECT 0, lane, id FROM " + table.Pending +
			" WHERE message_id = ?" + later + " AND NOT EXISTS (SELECT 1" + held + ") LIMIT 1",
		Args: []any{messageID, messageID, messageID},
	}
	return find, [2]Query{
		{SQL: "DELETE t FROM " + table.Pending + at + later, Args: []any{messageID}},
		{SQL: "DELETE t FROM " + table.Held + at + " AND sinks = '' AND state = 'scheduled'" + later, Args: []any{messageID}},
	}
}

// LockKeys locks one row for each key, in the order of the rows' slots. The slot is the highest
// ten bits of the key's CRC-32, so two keys may share a row. Producers in other languages
// compute the same slot, so the computation must not change.
func (mysql) LockKeys(table Table, keys []string) []Query {
	if len(keys) == 0 {
		return nil
	}
	slots := make([]int, len(keys))
	for i, key := range keys {
		slots[i] = int(crc32.ChecksumIEEE([]byte(key)) >> 22)
	}
	slices.Sort(slots)
	var list []string
	for _, slot := range slices.Compact(slots) {
		list = append(list, strconv.Itoa(slot))
	}
	return []Query{{SQL: "SELECT slot FROM " + table.Backquoted().KeyLocks + " FORCE INDEX (PRIMARY) WHERE slot IN (" +
		strings.Join(list, ",") + ") ORDER BY slot FOR UPDATE"}}
}

// Notify returns nothing: MySQL has no notifications.
func (mysql) Notify(Table) []Query { return nil }

func (mysql) Written(table Table) Query {
	return Query{SQL: "SELECT message_id, topic, message_key, payload, payload IS NULL, payload_text, headers," +
		" CAST(available_at AS CHAR), CAST(expires_at AS CHAR), priority FROM " + table.Backquoted().Messages + " ORDER BY id"}
}

// Receive doesn't use IGNORE, which would also hide other errors. It doesn't use ON DUPLICATE
// KEY either: the number of affected rows would then depend on the driver's settings.
func (mysql) Receive(table Table, consumer, messageID string) Query {
	return Query{SQL: "INSERT INTO " + table.Backquoted().Inbox + " (consumer, message_id) VALUES (?, ?)", Args: []any{consumer, messageID}}
}

// Received recognises "duplicate entry for key". The error rolls back only the statement.
func (mysql) Received(err error) bool { return hasMySQLNumber(err, "1062") }

// PurgeReceived orders by all columns of the index, so that a replica that repeats the
// statement deletes the same rows.
func (mysql) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return Query{
		SQL: "DELETE FROM " + table.Backquoted().Inbox + " WHERE consumer = ? AND received_at < utc_timestamp(6) + INTERVAL " +
			strconv.FormatInt(-window.Microseconds(), 10) + " MICROSECOND ORDER BY received_at, message_id LIMIT " + strconv.Itoa(limit),
		Args: []any{consumer},
	}
}

func (mysql) InboxVersion(table Table) Query { return inboxVersion(table.Backquoted()) }

// FixedRows generates the numbers with a join of digits, because a recursive query could
// exceed a server's limit on recursion.
func (mysql) FixedRows(table Table) []FixedRows {
	table = table.Backquoted()
	const digit = "(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7)"
	fixed := func(name, column string, want int) FixedRows {
		return FixedRows{
			Table: name, Want: want,
			Count: Query{SQL: "SELECT count(*) FROM " + name},
			Fill: Query{SQL: "INSERT IGNORE INTO " + name + " (" + column + ") SELECT n FROM (SELECT a.n + 8 * b.n + 64 * c.n + 512 * d.n AS n FROM " +
				digit + " AS a, " + digit + " AS b, " + digit + " AS c, " + digit + " AS d) AS numbers WHERE n < " + strconv.Itoa(want)},
		}
	}
	return []FixedRows{fixed(table.Lanes, "lane", 64), fixed(table.LaneLocks, "lane", 65), fixed(table.KeyLocks, "slot", 1024)}
}

func (mysql) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Backquoted().Settings + " WHERE name = 'schema'"}
}

// MakeRowIndexes creates both indexes in one statement, so that both exist or neither does. MySQL has
// no partial indexes, so the indexes begin with claimed_until. Rows without a claim come first, because
// their claimed_until is NULL. Relays use the same indexes to find claims that have ended.
func (mysql) MakeRowIndexes(table Table) []Query {
	return []Query{{SQL: "ALTER TABLE " + table.Backquoted().Pending +
		" ADD INDEX claim_id (claimed_until, id), ADD INDEX claim_priority (claimed_until, urgency, id)"}}
}

func (mysql) DropRowIndexes(table Table) []Query {
	return []Query{{SQL: "ALTER TABLE " + table.Backquoted().Pending + " DROP INDEX claim_id, DROP INDEX claim_priority"}}
}

// RowIndexes counts the index claim_id twice, because on MySQL it replaces two of the
// RowIndexCount indexes.
func (mysql) RowIndexes(table Table) Query {
	schema, args := "database()", []any{table.Name}
	if table.Schema != "" {
		schema, args = "?", []any{table.Schema, table.Name}
	}
	return Query{
		SQL: "SELECT coalesce(sum(CASE index_name WHEN 'claim_id' THEN 2 ELSE 1 END), 0)" +
			" FROM information_schema.statistics WHERE table_schema = " + schema + " AND table_name = ?" +
			" AND index_name IN ('claim_id', 'claim_priority') AND seq_in_index = 1",
		Args: args,
	}
}

// Busy recognises a deadlock, a lock wait timeout, a record that has changed since the last
// read (MariaDB), a table that was altered meanwhile, an index that another process created or
// dropped, and a transaction that was rolled back because it conflicts with a transaction on
// another server of a replication group (3101). It also recognises error 3854 of MySQL 9: the
// server can't show the list of transactions while one of them runs a statement with an emoji
// or invalid text. A lock wait timeout undoes only the statement, so the caller has to roll
// back the transaction.
func (mysql) Busy(err error) bool {
	return hasMySQLNumber(err, "1213", "1205", "1020", "1412", "1615", "1061", "1091", "3101", "3854")
}

// TimedOut recognises MySQL's max_execution_time (3024), MariaDB's max_statement_time (1969), and a running statement that
// one of these limits or KILL QUERY has interrupted (1317). The error rolls back only the statement.
func (mysql) TimedOut(err error) bool { return hasMySQLNumber(err, "3024", "1969", "1317") }

// Missing recognises "no such table" and "unknown database".
func (mysql) Missing(err error) bool { return hasMySQLNumber(err, "1146", "1049") }

// Denied recognises a missing privilege on the database, on a table or on a column, and a
// missing privilege for an administrative action.
func (mysql) Denied(err error) bool { return hasMySQLNumber(err, "1044", "1142", "1143", "1227") }

// Invalid recognises a value that is out of range, truncated, malformed, too long, NULL or
// missing. It also recognises a violated constraint: a unique key, a foreign key, or a CHECK of
// MySQL (3819) or MariaDB (4025).
func (mysql) Invalid(err error) bool {
	return hasMySQLNumber(err, "1264", "1265", "1292", "1366", "1367", "1406", "1048", "1364", "1411", "1441", "1525", "1690", "3140",
		"1062", "1022", "1451", "1452", "1118", "3819", "4025")
}

// Refused recognises missing privileges (1370 is about a routine), syntax errors, unknown columns, unsupported features,
// a view or trigger whose definer or tables don't exist, read-only tables, sql_safe_updates, max_join_size, and statements
// that the binary log or group replication doesn't allow.
func (m mysql) Refused(err error) bool {
	return m.Denied(err) || hasMySQLNumber(err, "1370", "1064", "1054", "1235", "1449", "1356", "1036", "1175", "1104",
		"1661", "1662", "1663", "1664", "1665", "1785", "3098")
}

// ReadOnly recognises read_only and super_read_only (1290, a number that other options share), transaction_read_only
// and innodb_read_only.
func (mysql) ReadOnly(err error) bool {
	return hasMySQLNumber(err, "1792", "1836") || hasMySQLNumber(err, "1290") && says(err, "read-only", "read_only")
}

// Made recognises the errors for a table, column or index that already exists. Gone recognises
// the errors for a table, column or index that doesn't exist.
func (mysql) Made(err error) bool { return hasMySQLNumber(err, "1050", "1060", "1061") }
func (mysql) Gone(err error) bool { return hasMySQLNumber(err, "1051", "1054", "1091", "1146", "4092") }

// mysqlError matches the number in the text of a server's error, in the format of both common drivers.
var mysqlError = regexp.MustCompile(`(?i)\berror (\d{4})\b`)

func hasMySQLNumber(err error, numbers ...string) bool {
	if err == nil {
		return false
	}
	found := mysqlError.FindStringSubmatch(err.Error())
	return found != nil && slices.Contains(numbers, found[1])
}

// Server selects the variables that Fit uses, some of which exist only on MySQL or only on
// MariaDB. The query needs no privilege. The trial uses two rows of the lanes table, which
// always exist.
func (d mysql) Server(table Table) (facts Query, trial *Trial) {
	names := []string{"version", "version_comment", "aurora_version", "auto_increment_increment", "wsrep_on", "group_replication_group_name", "group_replication_single_primary_mode",
		"innodb_thread_concurrency", "innodb_max_purge_lag", "read_only", "innodb_read_only", "log_bin", "binlog_format"}
	for _, setting := range d.settings() {
		names = append(names, setting.Name)
	}
	facts = Query{SQL: "SHOW VARIABLES WHERE variable_name IN ('" + strings.Join(names, "', '") + "')"}
	lanes := table.Backquoted().Lanes
	return facts, &Trial{
		Begin: []Query{{SQL: "SET @lock_wait_timeout = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1"}},
		End:   []Query{{SQL: "SET SESSION innodb_lock_wait_timeout = @lock_wait_timeout"}},
		Hold:  Query{SQL: "SELECT lane FROM " + lanes + " WHERE lane = 0 FOR UPDATE"},
		Pass:  Query{SQL: "SELECT lane FROM " + lanes + " WHERE lane IN (0, 1) ORDER BY lane FOR UPDATE SKIP LOCKED"},
		Want:  "1",
	}
}

// mysqlServer describes MySQL or MariaDB. The field least is the oldest supported version: the
// first version of MySQL whose column defaults may be expressions, or the oldest version of
// MariaDB that we test.
type mysqlServer struct {
	name, least string
	right       string // the Right of a WrongKind error
}

var mysqlServers = map[flavour]mysqlServer{
	flavourMySQL:   {"MySQL", "8.0.13", "MySQL"},
	flavourMariaDB: {"MariaDB", "10.5", "MariaDB"},
}

var mysqlNumbers = regexp.MustCompile(`^v?(\d+\.\d+(?:\.\d+)?)`)

// Fit distinguishes MySQL and MariaDB, and finds out whether the server has SKIP LOCKED. It refuses TiDB, old versions and
// unsuitable settings.
func (d mysql) Fit(server Server) (Fit, error) {
	facts := server.Facts
	is, version := flavourMySQL, strings.TrimPrefix(facts["version"], "5.5.5-") // MariaDB adds this prefix for replicas
	if version == "" {
		return Fit{}, errors.New("the server's list of variables has no version, so the list may be cut off: set sql_select_limit of this session to its default, in the URL or in the server")
	}
	if strings.Contains(version, "TiDB") { // its servers assign ids out of order and don't show open transactions
		return Fit{}, fmt.Errorf("the server is TiDB %s, which rowrelay does not support: use MySQL or MariaDB", version)
	}
	if strings.Contains(strings.ToLower(version+facts["version_comment"]), "mariadb") {
		is = flavourMariaDB
	}
	kind := mysqlServers[is]
	name := kind.name + " " + facts["version"]
	if (is == flavourMariaDB) != (d.flavour == flavourMariaDB) {
		return Fit{}, &WrongKind{Server: name, Given: d.Name(), Right: kind.right}
	}
	if found := mysqlNumbers.FindStringSubmatch(version); found != nil {
		version = found[1]
	}
	if versionBefore(version, kind.least) {
		return Fit{}, fmt.Errorf("the server is %s: %s %s or later is needed", name, kind.name, kind.least)
	}
	if err := fits(d.settings(), facts); err != nil {
		return Fit{}, err
	}
	if facts["log_bin"] == "ON" && facts["binlog_format"] == "STATEMENT" {
		return Fit{}, errors.New("the server's binlog_format is STATEMENT, and InnoDB then refuses the writes of transactions at READ COMMITTED, which relays use: set binlog_format to ROW or MIXED")
	}
	firstToSkip := map[flavour]string{flavourMariaDB: "10.6"}[is]
	skips := server.Skips && !versionBefore(version, firstToSkip)
	fit := Fit{Dialect: mysql{is, skips}, Notes: []Note{{Name: "server", OK: true, Detail: name}, mysqlSkipNote(skips)}}
	why, remedy := "", "send all writes to one server" // why several servers may assign ids, and what keeps the order
	switch {
	case facts["wsrep_on"] == "ON":
		why = "this is a Galera cluster, and each node assigns its own ids"
		remedy = "send all writes to one server at a time, and set wsrep_sync_wait to 7"
	case facts["group_replication_group_name"] != "" && facts["group_replication_single_primary_mode"] == "OFF":
		why = "this is a replication group with several primaries, and each primary assigns its own ids"
	case facts["auto_increment_increment"] != "" && facts["auto_increment_increment"] != "1":
		why = "auto_increment_increment is " + facts["auto_increment_increment"] + ", so several servers assign ids"
	}
	if why != "" {
		fit.Unordered = true
		fit.Notes = append(fit.Notes, Note{Name: "order", Detail: why + ": messages of one key may be delivered out of order, even if their transactions ran one after the other on different servers",
			Hint: remedy + ", or don't rely on the order; each transaction that writes messages must end within longest_transaction"})
	}
	// Each of these settings can delay an INSERT after its row got an id and before its transaction got a number. During the delay, relays
	// don't see the transaction.
	for _, name := range []string{"innodb_thread_concurrency", "innodb_max_purge_lag"} {
		if value := facts[name]; value != "" && value != "0" {
			fit.Notes = append(fit.Notes, Note{Name: "settings", Detail: name + " is " + value + ": if it delays an INSERT for a second, the message may be delivered out of order",
				Hint: "set it to 0, its default"})
		}
	}
	for _, name := range []string{"read_only", "innodb_read_only"} {
		if value := facts[name]; value != "" && value != "OFF" && value != "0" {
			fit.Notes = append(fit.Notes, Note{Name: "writable", Detail: name + " is " + value, Hint: "use the primary server"})
		}
	}
	return fit, nil
}

// versionBefore reports whether version is lower than other. Both consist of numbers separated by dots, and a missing number counts as 0.
func versionBefore(version, other string) bool {
	numbers := func(text string) (found [3]int) {
		for i, part := range strings.SplitN(text, ".", len(found)) {
			found[i], _ = strconv.Atoi(part)
		}
		return found
	}
	a, b := numbers(version), numbers(other)
	return slices.Compare(a[:], b[:]) < 0
}

func mysqlSkipNote(skips bool) Note {
	if skips {
		return Note{Name: "locked rows", OK: true, Detail: "are skipped (SKIP LOCKED)"}
	}
	return Note{Name: "locked rows", OK: true, Detail: "can't be skipped, because the server has no SKIP LOCKED: relays claim one after the other"}
}

func (mysql) settings() []Setting {
	not := func(fit string) func(string) bool { return func(value string) bool { return value != fit } }
	const (
		cut         = "the server refuses some of a relay's statements or truncates their results"
		isolation   = "the server's default level locks the gaps between rows, and producers then wait for each other"
		dirty       = "READ-UNCOMMITTED"
		charset     = "keys and topics are in UTF-8"
		rangeMemory = 8 << 20 // the server's default
	)
	uncommitted := func(value string) bool { return value == dirty }
	setting := func(name, value, why, refused string, unfit func(string) bool, wrong, right string) Setting {
		return Setting{Name: name, Value: value, Why: why, Refused: refused, unfit: unfit, wrong: wrong, right: right}
	}
	only := func(dialect Dialect, s Setting) Setting {
		s.Only = dialect.Name()
		return s
	}
	text := func(name string) Setting {
		return setting(name, "utf8mb4", charset, "all but utf8mb4", not("utf8mb4"), "the server converts keys and topics to another character set", "utf8mb4 (charset=utf8mb4 of go-sql-driver)")
	}
	return []Setting{
		only(MySQL(), setting("transaction_isolation", "'READ-COMMITTED'", isolation, dirty, uncommitted, "uncommitted messages would be delivered", "READ-COMMITTED or REPEATABLE-READ")),
		only(MariaDB(), setting("tx_isolation", "'READ-COMMITTED'", isolation, dirty, uncommitted, "uncommitted messages would be delivered", "READ-COMMITTED or REPEATABLE-READ")),
		setting("completion_type", "'NO_CHAIN'", "a commit must not begin another transaction", "all but NO_CHAIN", not("NO_CHAIN"), "a commit begins another transaction or ends the connection", "NO_CHAIN"),
		setting("sql_mode", "'TRADITIONAL'", "a value that is too long causes an error and is not truncated", "EMPTY_STRING_IS_NULL (MariaDB)", func(value string) bool { return strings.Contains(value, "EMPTY_STRING_IS_NULL") },
			"empty texts and payloads become NULL", "one without EMPTY_STRING_IS_NULL"),
		only(MySQL(), setting("range_optimizer_max_mem_size", "0", "even long lists of keys are looked up by an index", "less than 8 MiB, except 0", func(value string) bool {
			size, err := strconv.Atoi(value)
			return err == nil && size != 0 && size < rangeMemory
		}, "the server may read whole tables for a list of keys", strconv.Itoa(rangeMemory)+" or more, or to 0")),
		setting("autocommit", "1", "no statement leaves a transaction open", "OFF", not("ON"), "a single statement begins a transaction that is never ended", "ON"),
		setting("sql_safe_updates", "0", "some statements change whole tables", "ON", not("OFF"), cut, "OFF"),
		setting("sql_select_limit", mysqlNoLimit, "no result is cut off", "any limit", not(mysqlNoLimit), cut, mysqlNoLimit),
		setting("sql_big_selects", "1", "no statement is refused because of max_join_size", "OFF (a small max_join_size turns it off)", not("ON"), cut, "ON (max_join_size turns it off)"),
		text("character_set_client"), text("character_set_connection"), text("character_set_results"),
		{Name: "time_zone", Value: "'+00:00'", Why: "times are in UTC"},
		only(MySQL(), Setting{Name: "max_execution_time", Value: "0", Why: "relays set their own timeouts, and so does the admin page"}),
		only(MariaDB(), Setting{Name: "max_statement_time", Value: "0", Why: "relays set their own timeouts, and so does the admin page"}),
	}
}

// mysqlNoLimit is the highest value of sql_select_limit. It means no limit.
const mysqlNoLimit = "18446744073709551615"
