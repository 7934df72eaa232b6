package dialect

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

type postgres struct{}

// Postgres is the dialect of PostgreSQL 13 and later.
func Postgres() Dialect { return postgres{} }

// Name returns "postgres".
func (postgres) Name() string { return "postgres" }

const (
	// Up to here a list of values is quicker than arrays, measured through pgx
	// and lib/pq. There are as many texts of it as lengths, and a driver that
	// keeps prepared statements keeps each; the other statement has one text for
	// each choice of columns.
	postgresMaxValues = 20

	// A message of the protocol has less than 1 GiB, and a driver may send a
	// payload in twice its length.
	postgresMaxBytes = 16 << 20
)

// Text is cast where the column's type is another, for some drivers declare
// every string to be text.
var postgresCasts = map[string]string{"message_id": "::uuid", "headers": "::json", "available_at": "::timestamptz", "expires_at": "::timestamptz", "priority": "::smallint"}

func (postgres) Insert(table Table, rows []Row) []Query {
	columns := insertColumns(rows, time.Microsecond, "2006-01-02 15:04:05.000000+00")
	return insertParts(rows, len(rows), postgresMaxBytes, func(part []Row) Query {
		if len(rows) > postgresMaxValues {
			return postgresInsertArrays(table, columns, part)
		}
		var values strings.Builder
		for n := range len(part) * len(columns) {
			separator := ","
			switch {
			case n == 0:
				separator = "("
			case n%len(columns) == 0:
				separator = "),("
			}
			values.WriteString(separator + "$" + strconv.Itoa(n+1) + postgresCasts[columns[n%len(columns)].name])
		}
		return Query{SQL: insertInto(table, columns) + " VALUES " + values.String() + ")", Args: arguments(columns, part)}
	})
}

// postgresInsertArrays sends one array a column, as text, which every driver
// can. Payloads would double in length that way: they go as one value that the
// database cuts up, by where each begins, counted from 1, and its length, which is NULL if
// it is. ORDER BY makes sure that ids are given in the rows' order.
func postgresInsertArrays(table Table, columns []insertColumn, rows []Row) Query {
	size := 0
	for i := range rows {
		size += len(rows[i].Payload)
	}
	joined := make([]byte, 0, size) // never nil: all parts of a NULL are NULL
	starts, lengths := make([]int, len(rows)), make([]any, len(rows))
	for i := range rows {
		starts[i] = len(joined) + 1
		if rows[i].Payload != nil {
			lengths[i] = len(rows[i].Payload)
		}
		joined = append(joined, rows[i].Payload...)
	}
	args := []any{joined, PostgresArray(starts), PostgresArray(lengths)}
	var arrays, names []string
	for _, column := range columns {
		if column.name != "payload" {
			args = append(args, PostgresArray(arguments([]insertColumn{column}, rows)))
			arrays = append(arrays, "$"+strconv.Itoa(len(args))+cmp.Or(postgresCasts[column.name], "::text")+"[]")
			names = append(names, column.name)
		}
	}
	list := strings.Join(names, ", ")
	return Query{
		SQL: "INSERT INTO " + table.Pending + " (payload, " + list + ") SELECT substring($1::bytea FROM f FOR l), " + list +
			" FROM unnest($2::int[], $3::int[], " + strings.Join(arrays, ", ") + ") WITH ORDINALITY AS r (f, l, " + list + ", n) ORDER BY n",
		Args: args,
	}
}

// InsertIDs passes over what is there: an error would end the transaction.
func (postgres) InsertIDs(table Table, ids []string, token int64) []Query {
	return []Query{{
		SQL:  "INSERT INTO " + table.IDs + " (message_id, write_token) SELECT id, $2::bigint FROM unnest($1::uuid[]) AS g (id) ON CONFLICT DO NOTHING",
		Args: []any{PostgresArray(ids), token},
	}}
}

func (postgres) DeleteIDs(table Table, ids []string, token int64) []Query {
	return []Query{{
		SQL:  "DELETE FROM " + table.IDs + " WHERE message_id = ANY ($1::uuid[]) AND $2::bigint IN (0, write_token)",
		Args: []any{PostgresArray(ids), token},
	}}
}

// Cancel reads the clock anew, as now() is when the transaction began; also after it has
// waited for a row's lock. At READ COMMITTED a row that is moved meanwhile is found by the
// second statement. That available_at isn't null is the index's condition.
func (postgres) Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query) {
	where := " WHERE message_id = $1::uuid AND available_at IS NOT NULL AND available_at > clock_timestamp() + ($2::bigint * interval '1 microsecond')"
	args := []any{messageID, ahead.Microseconds()}
	return Query{}, [2]Query{
		{SQL: "DELETE FROM " + table.Pending + where, Args: args},
		{SQL: "DELETE FROM " + table.Held + where + " AND state = 'scheduled'", Args: args},
	}
}

// LockKeys takes one advisory lock a key. Any producer can compute the same
// number, so it must not change: see outbox/README.md. The table's oid keeps
// two tables apart, and locks that are taken in order can't deadlock.
func (postgres) LockKeys(table Table, keys []string) []Query {
	if len(keys) == 0 {
		return nil
	}
	return []Query{{
		SQL: "SELECT pg_advisory_xact_lock(h) FROM (SELECT DISTINCT hashtextextended(k, " + postgresOID(table) +
			"::bigint) AS h FROM unnest($1::text[]) AS k ORDER BY h) AS locks",
		Args: []any{PostgresArray(keys)},
	}}
}

// Notify sends the table's oid along, so that a listener can tell it from a
// table of the same name in another schema.
func (postgres) Notify(table Table) []Query {
	return []Query{{SQL: "SELECT pg_notify('" + table.Channel + "', " + postgresOID(table) + "::text)"}}
}

// postgresOID can paste the name into a literal, for it has no such quotes.
func postgresOID(table Table) string { return "'" + table.Pending + "'::regclass::oid" }

func (postgres) Written(table Table) Query {
	return Query{SQL: "SELECT message_id::text, topic, message_key, payload, payload IS NULL, payload_text, headers::text," +
		" to_char(available_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')," +
		" to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), priority FROM " + table.Messages + " ORDER BY id"}
}

func (postgres) Receive(table Table, consumer, messageID string) Query {
	return Query{
		SQL:  "INSERT INTO " + table.Inbox + " (consumer, message_id) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING",
		Args: []any{consumer, messageID},
	}
}

// Received is never: an error would have ended the transaction.
func (postgres) Received(error) bool { return false }

// PurgeReceived passes over rows that another is deleting. It names rows by
// their key: there are servers that know no places of rows.
func (postgres) PurgeReceived(table Table, consumer string, window time.Duration, limit int) Query {
	return Query{
		SQL: `WITH old AS MATERIALIZED (
    SELECT consumer, message_id FROM ` + table.Inbox + ` WHERE consumer = $1::text AND received_at < now() - ($2::bigint * interval '1 microsecond')
    ORDER BY received_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED)
DELETE FROM ` + table.Inbox + ` AS i USING old WHERE i.consumer = old.consumer AND i.message_id = old.message_id`,
		Args: []any{consumer, window.Microseconds(), int64(limit)},
	}
}

func (postgres) InboxVersion(table Table) Query { return inboxVersion(table) }

func (postgres) FixedRows(table Table) []FixedRows {
	return []FixedRows{{
		Table: table.Lanes, Want: 64,
		Count: Query{SQL: "SELECT count(*) FROM " + table.Lanes},
		Fill:  Query{SQL: "INSERT INTO " + table.Lanes + " (lane) SELECT generate_series(0, 63) ON CONFLICT (lane) DO NOTHING"},
	}}
}

func (postgres) SchemaVersion(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings + " WHERE name = 'schema'"}
}

// MakeRowIndexes doesn't say CONCURRENTLY, which can't run in a transaction and
// leaves an invalid index behind when it fails; the table is small or new.
func (postgres) MakeRowIndexes(table Table) []Query {
	return makeRowIndexes(table.IndexName, table.Pending)
}

// makeRowIndexes, of PostgreSQL and SQLite, gives each way to pick rows its order, among
// the free rows only, and finds the claims that ended.
func makeRowIndexes(name func(suffix string) string, on string) []Query {
	return []Query{
		{SQL: "CREATE INDEX IF NOT EXISTS " + name("claim_id") + " ON " + on + " (id) WHERE claimed_until IS NULL"},
		{SQL: "CREATE INDEX IF NOT EXISTS " + name("claim_priority") + " ON " + on + " (priority DESC, id) WHERE claimed_until IS NULL"},
		{SQL: "CREATE INDEX IF NOT EXISTS " + name("claim_until") + " ON " + on + " (claimed_until) WHERE claimed_until IS NOT NULL"},
	}
}

func (postgres) DropRowIndexes(table Table) []Query { return dropRowIndexes(table) }

func dropRowIndexes(table Table) []Query {
	return []Query{
		{SQL: "DROP INDEX IF EXISTS " + table.Index("claim_id")},
		{SQL: "DROP INDEX IF EXISTS " + table.Index("claim_priority")},
		{SQL: "DROP INDEX IF EXISTS " + table.Index("claim_until")},
	}
}

func (postgres) RowIndexes(table Table) Query {
	names := []string{table.Index("claim_id"), table.Index("claim_priority"), table.Index("claim_until")}
	return Query{SQL: "SELECT count(to_regclass(name)) FROM unnest($1::text[]) AS n (name)", Args: []any{PostgresArray(names)}}
}

// Busy: serialization failure, deadlock, lock not available.
func (postgres) Busy(err error) bool { return hasState(err, "40001", "40P01", "55P03") }

// TimedOut: statement_timeout or a cancelled statement, idle_in_transaction_session_timeout, transaction_timeout.
func (postgres) TimedOut(err error) bool { return hasState(err, "57014", "25P03", "25P04") }

// Missing: undefined table, invalid schema name.
func (postgres) Missing(err error) bool { return hasState(err, "42P01", "3F000") }

func (postgres) Denied(err error) bool { return hasState(err, "42501") }

// Invalid: data exceptions, violated constraints, a check option of a view, an exceeded limit of the program.
func (postgres) Invalid(err error) bool { return hasStateClass(err, "22", "23", "44", "54") }

// Refused: syntax errors and missing rights (42, so also what isn't there), unsupported features, and objects that aren't
// in the state that the statement requires, such as a published table without a replica identity.
func (postgres) Refused(err error) bool {
	return hasStateClass(err, "42", "0A") || hasState(err, "55000")
}

// ReadOnly: read-only transaction, and what reading a table that isn't logged is to a standby.
func (postgres) ReadOnly(err error) bool {
	return hasState(err, "25006") || hasState(err, "0A000") && says(err, "during recovery")
}

// hasState looks for an SQLSTATE, which the errors of pgx and of lib/pq tell.
func hasState(err error, states ...string) bool {
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && slices.Contains(states, coded.SQLState())
}

// hasStateClass looks for the first two characters of an SQLSTATE.
func hasStateClass(err error, classes ...string) bool {
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && slices.ContainsFunc(classes, func(class string) bool { return strings.HasPrefix(coded.SQLState(), class) })
}

// Server asks for the version, by which servers that take PostgreSQL's URLs and
// drivers tell themselves apart from it. There is no trial: PostgreSQL passes over what is
// locked. Of a table without a schema it asks whether search_path has one in which it may be.
func (postgres) Server(table Table) (facts Query, trial *Trial) {
	facts.SQL = "SELECT 'version', version() UNION ALL SELECT 'server_version_num', current_setting('server_version_num')" +
		" UNION ALL SELECT 'jit', COALESCE(current_setting('jit', true), 'off')"
	if table.Schema == "" {
		facts.SQL += " UNION ALL SELECT 'schema', COALESCE(current_schema(), '')"
	}
	return facts, nil
}

var postgresVersion = regexp.MustCompile(`PostgreSQL ([\d.]+)`)

// Fit refuses servers that speak PostgreSQL's language and show neither its
// snapshots nor its transactions, as they would lose messages that commit late.
//
// It warns of sessions that compile their plans. After a burst the index
// is large and the table nearly empty, and the planner reckons four pages of the
// index for each of its few rows: any statement then seems dear enough to be
// compiled, anew each time, which takes a hundred times as long as to run it.
func (postgres) Fit(server Server) (Fit, error) {
	version := server.Facts["version"]
	for mark, product := range map[string]string{"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"} {
		if strings.Contains(version, mark) {
			return Fit{}, fmt.Errorf("the server is %s, which isn't supported: PostgreSQL 13 or later is needed", product)
		}
	}
	beforeBuild, _, _ := strings.Cut(version, " on ")
	name := cmp.Or(postgresVersion.FindString(version), beforeBuild)
	number, err := strconv.Atoi(server.Facts["server_version_num"])
	if err != nil || number < 130000 {
		return Fit{}, fmt.Errorf("the server is of version %s: PostgreSQL 13 or later is needed", name)
	}
	if schema, asked := server.Facts["schema"]; asked && schema == "" {
		return Fit{}, errors.New("search_path of this session names no schema that exists and that this user may use:" +
			" name the table with its schema, such as public.outbox, or set search_path with ALTER ROLE … SET search_path")
	}
	jit := Note{Name: "jit", OK: true, Detail: "off in these sessions"}
	if server.Facts["jit"] == "on" {
		jit = Note{Name: "jit", Detail: "on in these sessions: short statements may be compiled, and take 0.1 s or more, once the table has been large",
			Hint: "turn it off where they begin (?jit=off in pgx's URL, options=-cjit=off in others'), or with ALTER ROLE … SET jit = off"}
	}
	return Fit{Dialect: Postgres(), Notes: []Note{{Name: "server", OK: true, Detail: name}, jit}}, nil
}

func (postgres) settings() []Setting {
	return []Setting{
		{Name: "client_encoding", Value: "UTF8", Why: "pgx takes all texts for UTF-8", Refused: "all but UTF8, and SQL_ASCII where the server converts nothing"},
		{Name: "datestyle", Value: "ISO", Why: "in the modes exec and simple_protocol pgx reads times as texts", Refused: "one in which the driver can't read times"},
		{Name: "bytea_output", Value: "hex", Why: "in the same modes pgx reads bytes as texts", Refused: "one in which the driver can't read bytes"},
		{Name: "standard_conforming_strings", Value: "on", Why: "in the mode simple_protocol pgx writes values into the text"},
		{Name: "jit", Value: "off", Why: "to compile a statement takes a hundred times as long as to run it"},
	}
}

// PostgresArray is the text form of an array, which every driver sends. Values are of int,
// int64, bool or string; any other one, nil among them, is NULL.
func PostgresArray[T any](values []T) string {
	text := append(make([]byte, 0, 2+24*len(values)), '{')
	for i, value := range values {
		if i > 0 {
			text = append(text, ',')
		}
		switch value := any(value).(type) {
		case int:
			text = strconv.AppendInt(text, int64(value), 10)
		case int64:
			text = strconv.AppendInt(text, value, 10)
		case bool:
			text = strconv.AppendBool(text, value)
		case string:
			text = append(text, '"')
			for j := range len(value) {
				if value[j] == '"' || value[j] == '\\' {
					text = append(text, '\\')
				}
				text = append(text, value[j])
			}
			text = append(text, '"')
		default:
			text = append(text, "NULL"...)
		}
	}
	return string(append(text, '}'))
}
