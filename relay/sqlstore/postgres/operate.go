package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// List implements [backend.Backend]. It reads each table in the order of an index, up to a limit, so that its
// duration doesn't depend on the table's size. It reads the tables outbox and outbox_held lane by lane. If the
// filter has a LookThrough, the limit is higher, and the filter is applied to the rows up to this limit. Two
// kinds of filters have no such limit and may read all rows: filters with message ids, and filters without a
// LookThrough that select by a column other than the id.
func (p *Postgres) List(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var a args
	after := " AND h.id > " + a.add(filter.AfterID, "bigint")
	narrow := filter.ByID || filter.Topic+filter.TopicPrefix != "" || filter.Key != "" || filter.Sink != "" || filter.Error != "" || filter.Holds || len(filter.Times()) > 0
	perLane, together := int64(filter.Limit), int64(filter.Limit)
	if filter.UntilID > 0 {
		after += " AND h.id <= " + a.add(filter.UntilID, "bigint")
	}
	switch {
	case filter.UntilID > 0: // read all rows of these messages, lane by lane
		perLane, together = math.MaxInt32, 0
		after += " AND h.message_id = ANY (" + a.add(dialect.PostgresArray(filter.MessageIDs), "uuid[]") + ")"
	case filter.ByID && len(filter.MessageIDs) == 0:
		after += " AND h.id = ANY (" + a.add(dialect.PostgresArray(filter.RowIDs), "bigint[]") + ")"
	case filter.ByID || (narrow || filter.State != "") && filter.LookThrough <= 0:
		perLane, together = 0, 0
	case narrow || filter.State != "":
		perLane, together = max(perLane, int64(filter.LookThrough/storage.Lanes)), max(together, int64(filter.LookThrough))
	}
	walk := func(columns, table, where string) string {
		if perLane == 0 {
			return "SELECT " + p.sql.Text(columns) + " FROM " + table + " AS h WHERE true" + where
		}
		return "SELECT w.* FROM " + p.table.Lanes + " AS l CROSS JOIN LATERAL (SELECT " + p.sql.Text(columns) + " FROM " + table +
			" AS h WHERE h.lane = l.lane" + where + " ORDER BY h.lane, h.id LIMIT " + a.add(perLane, "bigint") + ") AS w"
	}
	ordered := func(columns, table, where string) string {
		limit := ""
		if together > 0 {
			limit = " ORDER BY h.id LIMIT " + a.add(together, "bigint")
		}
		return "(SELECT " + p.sql.Text(columns) + " FROM " + table + " AS h WHERE true" + where + limit + ")"
	}
	var parts []string
	if any := filter.State == ""; any || filter.State == storage.StatePending || filter.State == storage.StateClaimed || filter.State == storage.StateScheduled {
		parts = append(parts, walk("hot as listed", p.table.Pending, after))
	}
	switch filter.State {
	case storage.StateError: // there is an index of parked rows by id
		parts = append(parts, ordered("held as listed", p.table.Held, after+" AND h.state = 'error'"))
	case storage.StatePending, storage.StateScheduled, storage.StateRetry, "":
		parts = append(parts, walk("held as listed", p.table.Held, after))
	}
	if filter.State == "" || filter.State == storage.StateDone {
		parts = append(parts, ordered("done as listed", p.table.Done, after))
	}
	if len(parts) == 0 {
		return nil, nil
	}
	where := a.filter(filter)
	if filter.State != "" {
		where += " AND t.state = " + a.add(string(filter.State), "text")
	}
	row := p.sql.Text("listed row")
	if filter.NoPayloads {
		row = strings.Replace(row, p.sql.Text("payload"), "NULL::bytea", 1)
	}
	query := "SELECT " + row + "\nFROM (SELECT * FROM (\n    " + strings.Join(parts, "\n    UNION ALL ") +
		"\n) AS t WHERE " + where + "\nORDER BY t.id LIMIT " + a.add(int64(filter.Limit), "bigint") + ") AS t ORDER BY t.id"
	return backend.ReadInfos(ctx, p.db, backend.Query{SQL: query, Args: a}, filter.MaxBytes)
}

// filter returns the filter's conditions on a row t. It omits conditions for empty fields, so that the server can use an index.
func (a *args) filter(filter backend.Filter) string {
	where := "t.id > " + a.add(filter.AfterID, "bigint")
	if filter.ByID {
		where += " AND (t.id = ANY (" + a.add(dialect.PostgresArray(filter.RowIDs), "bigint[]") + ") OR t.message_id = ANY (" + a.add(dialect.PostgresArray(filter.MessageIDs), "uuid[]") + "))"
	}
	if filter.Topic != "" {
		where += " AND t.topic = " + a.add(filter.Topic, "text")
	}
	if filter.TopicPrefix != "" {
		where += " AND strpos(t.topic, " + a.add(filter.TopicPrefix, "text") + ") = 1"
	}
	if filter.Key != "" {
		where += " AND t.message_key = " + a.add(filter.Key, "text")
	}
	if filter.Sink != "" {
		where += " AND strpos(',' || t.sinks || ',', " + a.add(","+filter.Sink+",", "text") + ") > 0"
	}
	for _, bound := range filter.Times() {
		where += " AND " + bound.Condition + a.add(bound.At.UTC().Format(timestamp), "timestamptz")
	}
	if filter.Holds {
		where += " AND t.holds = 1"
	}
	if filter.Error != "" {
		where += " AND strpos(t.last_error, " + a.add(filter.Error, "text") + ") > 0"
	}
	return where
}

// ChangeParked implements [backend.Backend]. One statement locks the rows that the filter selects,
// and changes them.
func (p *Postgres) ChangeParked(ctx context.Context, filter backend.Filter, what backend.ParkedChange) ([]int64, error) {
	var a args
	if what == backend.RedirectPending {
		query := "WITH pending AS MATERIALIZED (" +
			"\n    SELECT lane, id, message_id FROM " + p.table.Pending + " AS t WHERE true" + what.Condition(p.table.Pending, p.table.Held, "now()") + " AND " + a.filter(filter) +
			"\n    ORDER BY id LIMIT " + a.add(int64(filter.Limit), "bigint") + " FOR UPDATE)," +
			"\nhot AS (DELETE FROM " + p.table.Pending + " AS t USING pending AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id" +
			"\n    RETURNING " + backend.KeptFor(a.add(filter.To, "text")+" AS sinks") + ", t.available_at, t.last_error, t.attempt_log)" +
			"\nINSERT INTO " + p.table.Held + " (" + backend.Kept + ", " + backend.ChangingHeld + ", state, holds)" +
			"\nSELECT " + backend.Kept + ", 0, 0, available_at, last_error, attempt_log, 'scheduled', 0 FROM hot RETURNING id"
		return backend.IDs(ctx, p.db, backend.Query{SQL: query, Args: a})
	}
	sets := what.Set("now()", "'9999-01-01 00:00:00+00'")
	if what.Redirects() {
		sets += ", sinks = " + a.add(filter.To, "text")
	}
	change := "UPDATE " + p.table.Held + " AS t SET " + sets + "\nFROM parked AS p"
	if what.Deletes() {
		change = "DELETE FROM " + p.table.Held + " AS t USING parked AS p"
	}
	query := "WITH parked AS MATERIALIZED (" +
		"\n    SELECT lane, id, message_id, sinks FROM " + p.table.Held + " AS t WHERE t.state = '" + string(what.State()) + "'" + what.Condition(p.table.Pending, p.table.Held, "now()") + " AND " + a.filter(filter) +
		"\n    ORDER BY id LIMIT " + a.add(int64(filter.Limit), "bigint") + " FOR UPDATE)" +
		"\n" + change + " WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks" +
		"\nRETURNING t.id"
	return backend.IDs(ctx, p.db, backend.Query{SQL: query, Args: a})
}

// Parked implements [backend.Backend]. It disables nested loops, because the planner would choose loops that
// take minutes if the statistics are old, for example after many messages were parked in a short time.
func (p *Postgres) Parked(ctx context.Context, filter backend.Filter, within int64, each func(storage.Parked)) error {
	var a args
	where := a.filter(filter)
	return backend.InTx(ctx, p.db, readCommitted, []backend.Query{{SQL: "SET LOCAL enable_nestloop = off"}}, func(tx *sql.Tx) error {
		return backend.ReadParked(ctx, tx, p.table, p.table.Held+" t", "substr(t.last_error, 1, 200)", "d.headers::text", where, a, filter, within, each)
	})
}

// Check implements [backend.Backend].
func (p *Postgres) Check(ctx context.Context, claim storage.Claim) []storage.Finding {
	tables, needs := p.rights()
	names := dialect.PostgresArray([]string{p.table.Pending, p.table.Held, p.table.Done, p.table.Lanes, p.table.Relays, p.table.IDs})
	var user string
	if err := backend.One(ctx, p.db, backend.Query{SQL: "SELECT quote_ident(current_user)"}, &user); err != nil {
		return []storage.Finding{{Name: "rights", Detail: err.Error()}}
	}
	probes := []backend.Probe{
		{Name: "settings", Query: p.sql.Query("unfit settings"), Judge: backend.List("unsuitable settings: ", "change them for this user or database (ALTER ROLE … SET), or use the primary server")},
		{Name: "rights", Query: p.sql.Query("missing rights", dialect.PostgresArray(tables), dialect.PostgresArray(needs), p.table.Schema), Judge: backend.Lacks(user)},
		{Name: "ids", Query: p.sql.Query("ids out of order"), Judge: backend.List("with claiming by lanes a message might never be delivered: the id sequence has ", "run ALTER SEQUENCE … CACHE 1 INCREMENT BY 1 NO CYCLE")},
		{Name: "read", Query: p.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
		{Name: "transactions", Query: p.sql.Query("oldest transaction"), Judge: backend.List("a transaction has been open since ", "end this transaction, because until then vacuum can't remove deleted rows, and relays can't advance the lanes' marks. Find it: SELECT pid, xact_start, state, query FROM pg_stat_activity ORDER BY xact_start; then SELECT pg_terminate_backend(PID)")},
		{Name: "autovacuum", Query: p.sql.Query("autovacuum off", names), Judge: func(answer []string) (wrong, hint string) {
			if len(answer) == 0 {
				return "", ""
			}
			return "autovacuum is off, so deleted rows are never removed, and all reads get slower", "run " + strings.Join(answer, "; ")
		}},
		{Name: "dead rows", Query: p.sql.Query("dead rows", names, int64(manyDeadRows)), Judge: func(answer []string) (wrong, hint string) {
			if len(answer) == 0 {
				return "", ""
			}
			var vacuum []string
			for _, line := range answer {
				name, _, _ := strings.Cut(line, " ")
				vacuum = append(vacuum, "VACUUM ANALYZE "+name)
			}
			return strings.Join(answer, "; "), "run " + strings.Join(vacuum, "; ") + ". Dead rows that remain after VACUUM are still visible to an open transaction (see transactions), a replication slot (SELECT slot_name, xmin, catalog_xmin FROM pg_replication_slots) or a prepared transaction (pg_prepared_xacts)"
		}},
	}
	plan := p.page(backend.Read{Positions: []storage.Position{{Lane: 1, Until: 1 << 62}}, Limit: 500})
	if claim == storage.ByRows {
		plan = p.claim(storage.ClaimRequest{Limit: 500})
		probes = append(probes, backend.RowIndexes(p.dialect.RowIndexes(p.table)))
	}
	plan.SQL = "EXPLAIN " + plan.SQL
	judge := p.judgePlan
	if bytes, err := p.judgedBytes(ctx, p.table.Pending); err == nil && bytes == 0 {
		judge = backend.Nothing
	}
	return backend.Findings(ctx, p.db, append(probes, backend.Probe{Name: "plan", Query: plan, Judge: judge}))
}

// A check reports a table only if it has more than manyDeadRows dead rows. Normally autovacuum, with the
// settings that the migration gives the table outbox, keeps this table below that number.
const manyDeadRows = 200_000

// rights returns the privileges that a relay needs, each with its table. To lock a row, a relay
// needs the privilege UPDATE.
func (p *Postgres) rights() (tables, needs []string) {
	for _, needed := range []struct{ table, rights string }{
		{p.table.Pending, "SELECT INSERT UPDATE DELETE"}, {p.table.Held, "SELECT INSERT UPDATE DELETE"}, {p.table.Done, "SELECT INSERT UPDATE DELETE"}, {p.table.IDs, "SELECT UPDATE DELETE"},
		{p.table.Lanes, "SELECT UPDATE"}, {p.table.Relays, "SELECT INSERT UPDATE DELETE"},
		{p.table.Settings, "SELECT INSERT UPDATE"}, {p.table.Controls, "SELECT INSERT DELETE"}, {p.table.Actions, "SELECT INSERT UPDATE"}, {p.table.Epoch, "SELECT INSERT"}, {p.table.Messages, "SELECT"},
	} {
		for need := range strings.FieldsSeq(needed.rights) {
			tables, needs = append(tables, needed.table), append(needs, need)
		}
	}
	return tables, needs
}

// Explain implements [backend.Explainer].
func (p *Postgres) Explain(ctx context.Context, query backend.Query) (wrong string, err error) {
	plan, err := backend.Lines(ctx, p.db, backend.Query{SQL: "EXPLAIN " + query.SQL, Args: query.Args})
	if err != nil {
		return "", err
	}
	if wrong, _ = p.judgePlan(plan); wrong != "" {
		bytes, err := p.judgedBytes(ctx, p.table.Pending)
		if err != nil || bytes > 0 {
			return wrong, err
		}
	}
	for _, line := range plan { // compare the table's size, because a plan shows how many rows a scan returns, not how many it reads
		for _, table := range []string{p.table.Pending, p.table.Held, p.table.Done, p.table.IDs} {
			if name := p.bare(table); !strings.Contains(line, "Seq Scan on "+name+" ") && !strings.HasSuffix(line, "Seq Scan on "+name) {
				continue
			}
			bytes, err := p.judgedBytes(ctx, table)
			if err != nil || bytes <= largeTable {
				continue
			}
			if right, err := p.readsMostOf(ctx, table, line); err != nil || !right {
				return strings.TrimSpace(line), err
			}
		}
	}
	return "", nil
}

// Sample implements [backend.Explainer]. It returns a free lane as the result of the statement "lock free lanes": without a
// free lane, the statement "acquire" isn't run, and a check couldn't get its plan. The only
// statement that a check leaves out is "begin epoch", which is run once for each epoch of the server.
func (p *Postgres) Sample(query string) [][]driver.Value {
	if query == p.sql.Text("lock free lanes") {
		return [][]driver.Value{{int64(1)}}
	}
	return nil
}

// readsMostOf reports whether all indexes of the table exist and the server estimates that the scan returns at least a
// tenth of the table's rows. For that many rows, for example if half of the held rows are retries, a scan is faster than
// an index.
func (p *Postgres) readsMostOf(ctx context.Context, table, scan string) (bool, error) {
	rows := "0"
	if estimate := estimated.FindStringSubmatch(scan); estimate != nil {
		rows = estimate[1]
	}
	var indexes []string
	for _, name := range map[string][]string{p.table.Held: {"held_due", "held_retry", "held_error", "held_message"}, p.table.Done: {"done_finished"}, p.table.IDs: {"ids_written"}}[table] {
		indexes = append(indexes, p.table.Index(name))
	}
	var right bool
	err := backend.One(ctx, p.db, p.sql.Query("reads most of a table", table, rows, dialect.PostgresArray(indexes)), &right)
	return right, err
}

// judgedBytes returns the size of a table, or 0 if the server's statistics show no rows of the table. A plan isn't judged without
// statistics, because the server makes other plans when it has them.
func (p *Postgres) judgedBytes(ctx context.Context, table string) (bytes int, err error) {
	err = backend.One(ctx, p.db, backend.Query{SQL: "SELECT CASE WHEN reltuples > 0 THEN pg_relation_size(oid) ELSE 0 END FROM pg_class WHERE oid = to_regclass($1::text)", Args: []any{table}}, &bytes)
	return bytes, err
}

// largeTable is the size, in bytes, above which Explain reports scans of a whole table.
const largeTable = 4 << 20

// bare returns a table's name as it appears in plans: without the schema and quotes.
func (p *Postgres) bare(table string) string {
	return strings.Trim(table[strings.LastIndex(table, ".")+1:], `"`)
}

var estimated = regexp.MustCompile(`rows=(\d+)`)

// judgePlan reports a plan that sorts, or scans the whole table outbox, if the server estimates
// more than 10,000 rows. For fewer rows, a scan or a sort is the best plan.
func (p *Postgres) judgePlan(answer []string) (wrong, hint string) {
	name := p.bare(p.table.Pending)
	for _, line := range answer {
		whole := strings.Contains(line, "Seq Scan on "+name+" ") || strings.Contains(line, "Sort ")
		estimate := estimated.FindStringSubmatch(line)
		if !whole || estimate == nil {
			continue
		}
		if rows, err := strconv.Atoi(estimate[1]); err != nil || rows > 10_000 {
			return "it reads the whole table: " + strings.TrimSpace(line), "run ANALYZE " + p.table.Pending + ", and check that its indexes exist and are valid"
		}
	}
	return "", ""
}
