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

// Postgres returns the dialect of PostgreSQL 13 and later.
func Postgres() Dialect { return postgres{} }

// Name returns "postgres".
func (postgres) Name() string { return "postgres" }

const (
	// postgresMaxValues is the number of rows up to which a VALUES list is faster than
	// arrays, as measured with pgx and lib/pq. A VALUES list has a different text for each
	// number of rows, and a driver that caches prepared statements caches each text. The
	// statement with arrays has only one text for each set of columns.
	postgresMaxValues = 20

	// A message of PostgreSQL's protocol must be smaller than 1 GiB, and the driver's
	// encoding may double a payload's length.
	postgresMaxBytes = 16 << 20
)

// Parameters are cast if the column isn't of type text, because some drivers declare
// every string as text.
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

// postgresInsertArrays sends one array for each column, as text, which every driver can send.
// Payloads would double in length as text. So they are sent as one joined value, and the server
// splits it: one array has the payloads' positions, counted from 1, and another one has their
// lengths. A NULL payload has the length NULL. ORDER BY makes ids ascend in the order of the rows.
func postgresInsertArrays(table Table, columns []insertColumn, rows []Row) Query {
	size := 0
	for i := range rows {
		size += len(rows[i].Payload)
	}
	joined := make([]byte, 0, size) // never nil, because every substring of NULL is NULL
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

// InsertIDs skips existing ids, because an error would abort the transaction.
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

// Cancel uses clock_timestamp(), because now() is the time at which the transaction began. After
// waiting for a row's lock, the server evaluates the condition again. At READ COMMITTED, the second
// statement finds a row that a relay has moved meanwhile. "available_at IS NOT NULL" is the
// condition of the partial index.
func (postgres) Cancel(table Table, messageID string, ahead time.Duration) (find Query, deletes [2]Query) {
	where := " WHERE message_id = $1::uuid AND available_at IS NOT NULL AND available_at > clock_timestamp() + ($2::bigint * interval '1 microsecond')"
	args := []any{messageID, ahead.Microseconds()}
	return Query{}, [2]Query{
		{SQL: "DELETE FROM " + table.Pending + where, Args: args},
		{SQL: "DELETE FROM " + table.Held + where + " AND state = 'scheduled'", Args: args},
	}
}

// LockKeys takes one advisory lock for each key. Producers in other languages compute the
// same number, so the computation must not change: see outbox/README.md. The hash
// includes the table's oid, so that two tables have different locks. The statement takes
// the locks in the order of their numbers, so that two writers can't deadlock.
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

// Notify sends the table's oid as the payload, so that a listener can distinguish tables
// of the same name in different schemas.
func (postgres) Notify(table Table) []Query {
	return []Query{{SQL: "SELECT pg_notify('" + table.Channel + "', " + postgresOID(table) + "::text)"}}
}

// postgresOID returns an expression for the table's oid. The table's name is in a literal,
// which is safe because names contain no single quotes.
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

// Received returns false: Receive uses ON CONFLICT, because an error would abort the
// transaction.
func (postgres) Received(error) bool { return false }

// PurgeReceived skips rows that another process is deleting. The DELETE finds the rows by
// their primary key and not by ctid.
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

// MakeRowIndexes doesn't use CONCURRENTLY, which can't run in a transaction and leaves
// an invalid index behind if it fails. The table is usually small or new.
func (postgres) MakeRowIndexes(table Table) []Query {
	return makeRowIndexes(table.IndexName, table.Pending)
}

// makeRowIndexes creates the indexes on PostgreSQL and SQLite. The first two contain only
// rows without a claim, one by id and one by priority. Relays use the third to find claims
// that have ended.
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

// Busy recognises a serialization failure, a deadlock, and a lock that isn't available.
func (postgres) Busy(err error) bool { return hasState(err, "40001", "40P01", "55P03") }

// TimedOut recognises cancelled statements and the limits statement_timeout, idle_in_transaction_session_timeout and transaction_timeout.
func (postgres) TimedOut(err error) bool { return hasState(err, "57014", "25P03", "25P04") }

// Missing recognises an undefined table and an invalid schema name.
func (postgres) Missing(err error) bool { return hasState(err, "42P01", "3F000") }

func (postgres) Denied(err error) bool { return hasState(err, "42501") }

// Invalid recognises data exceptions, violated constraints, a violated check option of a view, and an exceeded program limit.
func (postgres) Invalid(err error) bool { return hasStateClass(err, "22", "23", "44", "54") }

// Refused recognises class 42 (syntax errors, missing rights, undefined objects), unsupported features, and objects that
// aren't in the state that the statement requires, such as a published table without a replica identity.
func (postgres) Refused(err error) bool {
	return hasStateClass(err, "42", "0A") || hasState(err, "55000")
}

// ReadOnly recognises a read-only transaction, and the error of a standby that reads an unlogged table.
func (postgres) ReadOnly(err error) bool {
	return hasState(err, "25006") || hasState(err, "0A000") && says(err, "during recovery")
}

// hasState reports whether the error has one of the SQLSTATEs. The errors of pgx and lib/pq have a method that returns
// their SQLSTATE.
func hasState(err error, states ...string) bool {
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && slices.Contains(states, coded.SQLState())
}

// hasStateClass reports whether the SQLSTATE of the error begins with one of the classes.
func hasStateClass(err error, classes ...string) bool {
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && slices.ContainsFunc(classes, func(class string) bool { return strings.HasPrefix(coded.SQLState(), class) })
}

// Server selects the version, which also shows whether the server is another product that uses
// PostgreSQL's protocol. The trial is nil, because PostgreSQL can skip locked rows. If the
// table's name has no schema, Server also selects the first schema of search_path that exists.
func (postgres) Server(table Table) (facts Query, trial *Trial) {
	facts.SQL = "SELECT 'version', version() UNION ALL SELECT 'server_version_num', current_setting('server_version_num')" +
		" UNION ALL SELECT 'jit', COALESCE(current_setting('jit', true), 'off')"
	if table.Schema == "" {
		facts.SQL += " UNION ALL SELECT 'schema', COALESCE(current_schema(), '')"
	}
	return facts, nil
}

var postgresVersion = regexp.MustCompile(`PostgreSQL ([\d.]+)`)

// Fit refuses CockroachDB and YugabyteDB: they don't show snapshots and open transactions
// as PostgreSQL does, so relays would lose messages that commit late.
//
// Fit warns if jit is on. After a burst of messages the index is large and the table nearly
// empty, and the planner estimates four index pages for each of the few rows. So it considers
// every statement expensive, and the server compiles it each time it runs. Compiling takes a
// hundred times as long as running the statement.
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
		return Fit{}, fmt.Errorf("the server is %s: PostgreSQL 13 or later is needed", name)
	}
	if schema, asked := server.Facts["schema"]; asked && schema == "" {
		return Fit{}, errors.New("search_path of this session names no schema that exists and that this user may use:" +
			" name the table with its schema, such as public.outbox, or set search_path with ALTER ROLE … SET search_path")
	}
	jit := Note{Name: "jit", OK: true, Detail: "off in these sessions"}
	if server.Facts["jit"] == "on" {
		jit = Note{Name: "jit", Detail: "on in these sessions: after the table has been large, the server may compile short statements, which then take 0.1 s or more",
			Hint: "turn it off in the connection URL (?jit=off for pgx, options=-cjit=off for other drivers), or with ALTER ROLE … SET jit = off"}
	}
	return Fit{Dialect: Postgres(), Notes: []Note{{Name: "server", OK: true, Detail: name}, jit}}, nil
}

func (postgres) settings() []Setting {
	return []Setting{
		{Name: "client_encoding", Value: "UTF8", Why: "pgx treats all text as UTF-8", Refused: "all except UTF8, and except SQL_ASCII if the database's encoding is UTF8 or SQL_ASCII"},
		{Name: "datestyle", Value: "ISO", Why: "in the modes exec and simple_protocol pgx reads times as text", Refused: "a format that the driver can't read as a time"},
		{Name: "bytea_output", Value: "hex", Why: "in the modes exec and simple_protocol pgx reads bytes as text", Refused: "a format that the driver can't read as bytes"},
		{Name: "standard_conforming_strings", Value: "on", Why: "in the mode simple_protocol pgx writes values into the SQL text"},
		{Name: "jit", Value: "off", Why: "compiling a statement takes a hundred times as long as running it"},
	}
}

// PostgresArray returns an array in PostgreSQL's text form, which every driver can send. The
// values are of type int, int64, bool or string; a value of another type, such as nil, is NULL.
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
