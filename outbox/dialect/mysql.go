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

// mysql is the dialect of MySQL and of those that descend from it.
type mysql struct {
	flavour flavour

	// skipLocked: a locking select can pass over rows that others have locked.
	// Without it, who takes lanes or rows waits for those who do the same.
	skipLocked bool
}

type flavour string

const (
	flavourMySQL   flavour = "mysql"
	flavourMariaDB flavour = "mariadb"
)

// MySQL is the dialect of MySQL 8.0.13 and later.
func MySQL() Dialect { return mysql{flavourMySQL, true} }

// MariaDB is the dialect of MariaDB 10.5 and later. A store finds out by itself
// whether the server can pass over locked rows, which it can from 10.6 on.
func MariaDB() Dialect { return mysql{flavourMariaDB, true} }

// SkipsLocked says whether a locking select of the dialect's server can pass over rows
// that others have locked.
func SkipsLocked(d Dialect) bool {
	m, ok := d.(mysql)
	return ok && m.skipLocked
}

// Name returns "mysql" or "mariadb".
func (d mysql) Name() string { return string(d.flavour) }

// Insert keeps to what a packet has at most on old servers, 4 MiB, if nobody has changed
// that; a driver that puts arguments into the text sends a payload in twice its length.
func (mysql) Insert(table Table, rows []Row) []Query {
	const maxBytes, maxParameters = 1 << 20, 65535
	return insertValues(table.Backquoted(), insertColumns(rows, time.Microsecond, "2006-01-02 15:04:05.000000"), rows, maxParameters, maxBytes)
}

// InsertIDs has IGNORE: an id and a number can be wrong in no other way than to be there.
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

// mysqlMaxIDs is how many ids one statement has: with many more in a list, servers walk over
// the table.
const mysqlMaxIDs = 1000

func anys(texts []string) []any {
	values := make([]any, len(texts))
	for i, text := range texts {
		values[i] = text
	}
	return values
}

// Cancel searches by a read that locks nothing. At the usual level a DELETE that searches by
// the message would lock the gap in the index where it isn't, and with it others' inserts;
// by the whole primary key of a row that is there it locks nothing else; MariaDB goes by another one
// unless it is told. A held row that is scheduled names no sinks.
//
// The hot table has no index of messages: there are none of some rows only, and on MariaDB one
// more cost inserts 4 to 9 %. So it is read from end to end, where the message isn't held: it
// is there until a relay has seen it, and there is much else only if relays lag behind.
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

// LockKeys locks rows, which two keys may share, in their order. Any producer can
// compute the same numbers, the highest ten bits of the checksum, so they must not change.
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

// Notify returns nothing: there is no such thing.
func (mysql) Notify(Table) []Query { return nil }

func (mysql) Written(table Table) Query {
	return Query{SQL: "SELECT message_id, topic, message_key, payload, payload IS NULL, payload_text, headers," +
		" CAST(available_at AS CHAR), CAST(expires_at AS CHAR), priority FROM " + table.Backquoted().Messages + " ORDER BY id"}
}

// Receive has no IGNORE, which would pass over other errors as well; nor ON
// DUPLICATE KEY, where the number of rows depends on how the driver was set.
func (mysql) Receive(table Table, consumer, messageID string) Query {
	return Query{SQL: "INSERT INTO " + table.Backquoted().Inbox + " (consumer, message_id) VALUES (?, ?)", Args: []any{consumer, messageID}}
}

// Received: duplicate entry for a key. It takes back the statement alone.
func (mysql) Received(err error) bool { return hasMySQLNumber(err, "1062") }

// PurgeReceived orders by the whole of the index, so that a replica that repeats
// the statement deletes the same.
func (mysql) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return Query{
		SQL: "DELETE FROM " + table.Backquoted().Inbox + " WHERE consumer = ? AND received_at < utc_timestamp(6) + INTERVAL " +
			strconv.FormatInt(-window.Microseconds(), 10) + " MICROSECOND ORDER BY received_at, message_id LIMIT " + strconv.Itoa(limit),
		Args: []any{consumer},
	}
}

func (mysql) InboxVersion(table Table) Query { return inboxVersion(table.Backquoted()) }

// FixedRows counts up by a join of digits, as no server limits how deep that goes.
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

// MakeRowIndexes makes all in one statement, so that there are all or none. There
// are no indexes of some rows only: the free ones have no claimed_until and come
// first. The claims that have ended are found by either.
func (mysql) MakeRowIndexes(table Table) []Query {
	return []Query{{SQL: "ALTER TABLE " + table.Backquoted().Pending +
		" ADD INDEX claim_id (claimed_until, id), ADD INDEX claim_priority (claimed_until, urgency, id)"}}
}

func (mysql) DropRowIndexes(table Table) []Query {
	return []Query{{SQL: "ALTER TABLE " + table.Backquoted().Pending + " DROP INDEX claim_id, DROP INDEX claim_priority"}}
}

// RowIndexes counts the first one twice: here, it does for two.
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

// Busy: deadlock, lock wait timed out, the record has changed since the last
// read (MariaDB), the table was changed meanwhile, an index was made or dropped
// by another; of MySQL 9, the list of transactions can't be shown, as one of
// them is in a statement with an emoji, or with bytes that are no text. A timeout
// takes back its statement alone, so who is told of it has to roll back.
func (mysql) Busy(err error) bool {
	return hasMySQLNumber(err, "1213", "1205", "1020", "1412", "1615", "1061", "1091", "3854")
}

// TimedOut: MySQL's max_execution_time, MariaDB's max_statement_time, and either of them or KILL QUERY in the middle of
// a statement. It takes back its statement alone.
func (mysql) TimedOut(err error) bool { return hasMySQLNumber(err, "3024", "1969", "1317") }

// Missing: no such table, unknown database.
func (mysql) Missing(err error) bool { return hasMySQLNumber(err, "1146", "1049") }

// Denied: to the database, to a command on a table, to a column, to a thing that
// takes a privilege of its own.
func (mysql) Denied(err error) bool { return hasMySQLNumber(err, "1044", "1142", "1143", "1227") }

// Invalid: a value is out of range, cut, malformed, too long, NULL or missing, or violates a
// constraint: a unique key, a foreign key, or a CHECK of MySQL (3819) or MariaDB (4025).
func (mysql) Invalid(err error) bool {
	return hasMySQLNumber(err, "1264", "1265", "1292", "1366", "1367", "1406", "1048", "1364", "1411", "1441", "1525", "1690", "3140",
		"1062", "1022", "1451", "1452", "1118", "3819", "4025")
}

// Refused: besides missing rights (1370: to a routine), syntax errors, columns that aren't there, what isn't supported,
// a view or trigger whose definer or tables are gone, read-only tables, sql_safe_updates, max_join_size, and what the binary
// log or group replication doesn't take.
func (m mysql) Refused(err error) bool {
	return m.Denied(err) || hasMySQLNumber(err, "1370", "1064", "1054", "1235", "1449", "1356", "1036", "1175", "1104",
		"1661", "1662", "1663", "1664", "1665", "1785", "3098")
}

// ReadOnly: read_only or super_read_only (1290, which stands for other options, too), transaction_read_only,
// innodb_read_only.
func (mysql) ReadOnly(err error) bool {
	return hasMySQLNumber(err, "1792", "1836") || hasMySQLNumber(err, "1290") && says(err, "read-only", "read_only")
}

// Made: there is such a table, column or index. Gone: there is none.
func (mysql) Made(err error) bool { return hasMySQLNumber(err, "1050", "1060", "1061") }
func (mysql) Gone(err error) bool { return hasMySQLNumber(err, "1051", "1054", "1091", "1146", "4092") }

// mysqlError is how both usual drivers begin the text of an error of the server.
var mysqlError = regexp.MustCompile(`(?i)\berror (\d{4})\b`)

func hasMySQLNumber(err error, numbers ...string) bool {
	if err == nil {
		return false
	}
	found := mysqlError.FindStringSubmatch(err.Error())
	return found != nil && slices.Contains(numbers, found[1])
}

// Server asks for the variables that matter, of any server of the family; each has some of
// them. It needs no right. The trial is of two lanes, since these rows are always there.
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

// mysqlServer is one of the servers that speak MySQL's language, and the oldest version of
// it that will do: the first MySQL whose defaults may be expressions, and the oldest MariaDB
// that is tried.
type mysqlServer struct {
	name, least string
	right       string // as in WrongKind
}

var mysqlServers = map[flavour]mysqlServer{
	flavourMySQL:   {"MySQL", "8.0.13", "MySQL"},
	flavourMariaDB: {"MariaDB", "10.5", "MariaDB"},
}

var mysqlNumbers = regexp.MustCompile(`^v?(\d+\.\d+(?:\.\d+)?)`)

// Fit tells MySQL from MariaDB, refuses old ones and TiDB, and knows which one has SKIP LOCKED.
func (d mysql) Fit(server Server) (Fit, error) {
	facts := server.Facts
	is, version := flavourMySQL, strings.TrimPrefix(facts["version"], "5.5.5-") // with which MariaDB's replicas begin theirs
	if version == "" {
		return Fit{}, errors.New("the server doesn't list all of its variables: set sql_select_limit of this session to its default, in the URL or in the server")
	}
	if strings.Contains(version, "TiDB") { // whose servers give out ids out of order, and don't show open transactions
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
		return Fit{}, errors.New("the server's binlog_format is STATEMENT, with which InnoDB refuses the writes of transactions at READ COMMITTED, such as a relay's: set binlog_format to ROW or MIXED")
	}
	firstToSkip := map[flavour]string{flavourMariaDB: "10.6"}[is]
	skips := server.Skips && !versionBefore(version, firstToSkip)
	fit := Fit{Dialect: mysql{is, skips}, Notes: []Note{{Name: "server", OK: true, Detail: name}, mysqlSkipNote(skips)}}
	why := "" // ids aren't given out in one order
	switch {
	case facts["wsrep_on"] == "ON":
		why = "this is a Galera cluster, each of whose nodes gives out ids by itself"
	case facts["group_replication_group_name"] != "" && facts["group_replication_single_primary_mode"] == "OFF":
		why = "this is a replication group with several primaries, each of which gives out ids by itself"
	case facts["auto_increment_increment"] != "" && facts["auto_increment_increment"] != "1":
		why = "auto_increment_increment is " + facts["auto_increment_increment"] + ", so several servers give out ids"
	}
	if why != "" {
		fit.Unordered = true
		fit.Notes = append(fit.Notes, Note{Name: "order", Detail: why + ": messages of one key may overtake each other if their transactions run at the same time",
			Hint: "let one server take all writes, or do without order; each transaction that writes messages must be over within longest_transaction"})
	}
	for _, name := range []string{"innodb_thread_concurrency", "innodb_max_purge_lag"} { // keep a writer between its id and its number
		if value := facts[name]; value != "" && value != "0" {
			fit.Notes = append(fit.Notes, Note{Name: "settings", Detail: name + " is " + value + ": a message whose insert it holds up for a second may lose its place",
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

// versionBefore compares numbers with dots between. What isn't there is 0.
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
		return Note{Name: "locked rows", OK: true, Detail: "are passed over (SKIP LOCKED)"}
	}
	return Note{Name: "locked rows", OK: true, Detail: "can't be passed over (no SKIP LOCKED): relays claim one after the other"}
}

func (mysql) settings() []Setting {
	not := func(fit string) func(string) bool { return func(value string) bool { return value != fit } }
	const (
		cut         = "the server refuses some of a relay's statements or cuts off what they return"
		isolation   = "the servers' own default locks the gaps between rows, and producers then wait for each other"
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
		return setting(name, "utf8mb4", charset, "all but utf8mb4", not("utf8mb4"), "keys and topics change on their way", "utf8mb4, as charset=utf8mb4 does")
	}
	return []Setting{
		only(MySQL(), setting("transaction_isolation", "'READ-COMMITTED'", isolation, dirty, uncommitted, "messages would be delivered that are never committed", "READ-COMMITTED or REPEATABLE-READ")),
		only(MariaDB(), setting("tx_isolation", "'READ-COMMITTED'", isolation, dirty, uncommitted, "messages would be delivered that are never committed", "READ-COMMITTED or REPEATABLE-READ")),
		setting("completion_type", "'NO_CHAIN'", "a commit ends a transaction, and nothing else", "all but NO_CHAIN", not("NO_CHAIN"), "a commit begins another transaction or ends the connection", "NO_CHAIN"),
		setting("sql_mode", "'TRADITIONAL'", "what is too long is an error, and is not cut off", "EMPTY_STRING_IS_NULL (MariaDB)", func(value string) bool { return strings.Contains(value, "EMPTY_STRING_IS_NULL") },
			"empty texts and payloads become NULL", "one without EMPTY_STRING_IS_NULL"),
		only(MySQL(), setting("range_optimizer_max_mem_size", "0", "lists of keys are looked up by an index, however long", "less than 8 MiB, but for 0", func(value string) bool {
			size, err := strconv.Atoi(value)
			return err == nil && size != 0 && size < rangeMemory
		}, "the server may read whole tables where keys are listed", strconv.Itoa(rangeMemory)+" or more, or to 0")),
		setting("autocommit", "1", "no statement leaves a transaction open", "OFF", not("ON"), "a single statement begins a transaction that nobody ends", "ON"),
		setting("sql_safe_updates", "0", "some statements change whole tables", "ON", not("OFF"), cut, "OFF"),
		setting("sql_select_limit", mysqlNoLimit, "no result is cut off", "any limit", not(mysqlNoLimit), cut, mysqlNoLimit),
		setting("sql_big_selects", "1", "no statement is refused, whatever max_join_size is", "OFF, as max_join_size has it", not("ON"), cut, "ON (max_join_size turns it off)"),
		text("character_set_client"), text("character_set_connection"), text("character_set_results"),
		{Name: "time_zone", Value: "'+00:00'", Why: "times are in UTC"},
		only(MySQL(), Setting{Name: "max_execution_time", Value: "0", Why: "a relay bounds its calls itself; the page's reads have a limit"}),
		only(MariaDB(), Setting{Name: "max_statement_time", Value: "0", Why: "a relay bounds its calls itself; the page's reads have a limit"}),
	}
}

// mysqlNoLimit is the highest value of a limit, which is none.
const mysqlNoLimit = "18446744073709551615"
