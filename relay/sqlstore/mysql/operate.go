package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// List implements [backend.Backend]. Its query has one or more SELECTs for each table that may
// have matching messages. Each SELECT follows the order of an index and has the filter's limit. The query doesn't use the view, because a
// server would first materialize the whole view. If the filter limits the rows to examine, List first selects the id of the last of these
// rows, and writes it into the condition as a number, so that every server stops after this row.
func (m *MySQL) List(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var list []any
	var err error
	row := m.sql.Text("row")
	if filter.NoPayloads {
		row = strings.Replace(row, m.sql.Text("payload"), "NULL", 1)
	}
	part := func(from, state, flags, more, where string, states ...storage.State) {
		if err != nil || filter.State != "" && !slices.Contains(states, filter.State) {
			return
		}
		until := ""
		if filter.Bounded() {
			last := int64(math.MaxInt64)
			err = backend.All(ctx, m.db, query("SELECT t.id FROM "+from+" WHERE "+where+" AND t.id > "+number(filter.AfterID)+" ORDER BY t.id LIMIT 1 OFFSET "+number(filter.LookThrough)), func() {}, &last)
			until = " AND t.id <= " + number(last)
		}
		if len(list) > 0 {
			list = append(list, "\nUNION ALL ")
		}
		list = append(list, "(SELECT "+row+",\n    "+m.sql.Text("has payload")+" + "+flags+", "+state+" AS state, coalesce(t.last_error, ''), "+more+
			"\nFROM "+from+" WHERE "+where, conditions(filter), until)
		if filter.State != "" {
			list = append(list, " AND "+state+" = CONVERT(", arg(string(filter.State)), " USING utf8mb4) COLLATE utf8mb4_bin")
		}
		list = append(list, "\nORDER BY t.id LIMIT "+number(filter.Limit)+")")
	}
	later := m.sql.Text("later")
	part(m.table.Pending+" AS t FORCE INDEX (id)", m.sql.Text("hot state"), later, "'' AS receipt, coalesce(t.claimed_by, '') AS claimed_by, NULL AS finished_at", "TRUE", storage.StatePending, storage.StateClaimed, storage.StateScheduled)
	for _, state := range []storage.State{storage.StateScheduled, storage.StateRetry, storage.StateError} {
		shown := []storage.State{state}
		if state == storage.StateScheduled {
			shown = append(shown, storage.StatePending) // a scheduled row that is due is listed with this state
		}
		part(m.table.Held+" AS t FORCE INDEX (held_id)", m.sql.Text("held state"), later+" + 4 * (t.state = 'retry') + 16 * t.holds", "'' AS receipt, '' AS claimed_by, NULL AS finished_at", "t.state = '"+string(state)+"'", shown...)
	}
	part(m.table.Done+" AS t FORCE INDEX (PRIMARY)", "'done'", later, "coalesce(t.receipt, '') AS receipt, '' AS claimed_by, CAST(t.finished_at AS CHAR) AS finished_at", "TRUE", storage.StateDone)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return backend.ReadInfos(ctx, m.db, join(append(list, "\nORDER BY id LIMIT "+number(filter.Limit))...).query(), filter.MaxBytes)
}

// conditions returns the conditions on a row t for the filter's fields that aren't empty. They compare texts as bytes.
func conditions(filter backend.Filter) text {
	parts := []any{" AND t.id > " + number(filter.AfterID)}
	if filter.UntilID > 0 {
		parts = append(parts, " AND t.id <= "+number(filter.UntilID))
	}
	switch {
	case filter.ByID && len(filter.MessageIDs) == 0:
		parts = append(parts, " AND t.id IN "+backend.NumberList(filter.RowIDs))
	case filter.ByID:
		parts = append(parts, " AND (t.id IN "+backend.NumberList(filter.RowIDs)+" OR t.message_id IN ", text{arguments(len(filter.MessageIDs)), texts(filter.MessageIDs)}, ")")
	}
	if filter.Topic != "" {
		parts = append(parts, " AND CAST(t.topic AS BINARY) = ", arg(filter.Topic))
	}
	if filter.TopicPrefix != "" {
		parts = append(parts, " AND locate(CAST(", arg(filter.TopicPrefix), " AS BINARY), CAST(t.topic AS BINARY)) = 1")
	}
	if filter.Key != "" {
		parts = append(parts, " AND CAST(t.message_key AS BINARY) = ", arg(filter.Key))
	}
	if filter.Sink != "" {
		parts = append(parts, " AND locate(CAST(", arg(","+filter.Sink+","), " AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0")
	}
	for _, bound := range filter.Times() {
		parts = append(parts, " AND "+bound.Condition, arg(timestamp(bound.At)))
	}
	if filter.Holds {
		parts = append(parts, " AND t.holds = 1")
	}
	if filter.Error != "" {
		parts = append(parts, " AND locate(CAST(", arg(filter.Error), " AS BINARY), CAST(t.last_error AS BINARY)) > 0")
	}
	return join(parts...)
}

// ChangeParked implements [backend.Backend]. It locks the rows that meet the filter and the
// change's condition, and then changes them.
func (m *MySQL) ChangeParked(ctx context.Context, filter backend.Filter, what backend.ParkedChange) (ids []int64, err error) {
	if what == backend.RedirectPending {
		return m.redirectPending(ctx, filter)
	}
	parked := join("SELECT t.lane, t.id, t.message_id, t.sinks FROM "+m.table.Held+" AS t FORCE INDEX (held_id) WHERE t.state = '"+string(what.State())+"'"+what.Condition(m.table.Pending, m.table.Held, "utc_timestamp(6)"), conditions(filter),
		" ORDER BY t.id LIMIT "+number(filter.Limit)+" FOR UPDATE")
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		var rows []storage.Settlement
		var row storage.Settlement
		err := backend.All(ctx, tx, parked.query(), func() { rows, ids = append(rows, row), append(ids, row.ID) }, &row.Lane, &row.ID, &row.MessageID, &row.Sinks)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(rows, mostGiven) {
			g := givens(m.server, part, "sinks")
			change := join("UPDATE ", g.table(), m.table.Held+" AS t FORCE INDEX (PRIMARY)", g.on(), " SET "+what.Set("utc_timestamp(6)", "TIMESTAMP'9999-01-01 00:00:00'"))
			if what.Redirects() {
				change = join(change, ", t.sinks = ", arg(filter.To))
			}
			if what.Deletes() {
				change = join("DELETE t FROM ", g.table(), m.table.Held+" AS t FORCE INDEX (PRIMARY)", g.on())
			}
			if _, err := backend.Exec(ctx, tx, change.query()); err != nil {
				return err
			}
		}
		return nil
	})
	return ids, err
}

// redirectPending sets the sink of pending rows to filter.To, and moves the rows to the held table as scheduled rows. It finds the rows
// without locks, so that it doesn't wait for writers. It checks the conditions again when it locks the rows.
func (m *MySQL) redirectPending(ctx context.Context, filter backend.Filter) (ids []int64, err error) {
	condition := backend.RedirectPending.Condition(m.table.Pending, m.table.Held, "utc_timestamp(6)")
	found := join("SELECT t.lane, t.id, t.message_id, t.sinks FROM "+m.table.Pending+" AS t FORCE INDEX (id) WHERE TRUE"+condition, conditions(filter), " ORDER BY t.id LIMIT "+number(filter.Limit))
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		var row storage.Settlement
		rows := func(query backend.Query) (rows []storage.Settlement, err error) {
			err = backend.All(ctx, tx, query, func() { rows = append(rows, row) }, &row.Lane, &row.ID, &row.MessageID, &row.Sinks)
			return rows, err
		}
		all, err := rows(found.query())
		if err != nil {
			return err
		}
		for part := range slices.Chunk(all, mostGiven) {
			g := givens(m.server, part)
			part, err := rows(join("SELECT t.lane, t.id, t.message_id, t.sinks FROM ", g.rows(m.table.Pending), condition, conditions(filter), m.sql.Text("lock t")).query())
			if err != nil || len(part) == 0 {
				return err
			}
			for i := range part {
				part[i].State = storage.StateScheduled
				ids = append(ids, part[i].ID)
			}
			g = givens(m.server, part, "state", "attempts", "crashes", "delay", "error", "holds", "attempt_log")
			move := moving{MySQL: m}
			_, err = backend.Exec(ctx, tx, m.hold(g, join(backend.KeptFor(""), arg(filter.To)), g.rows(m.table.Pending)), move.remove(m.table.Pending, text{}, part).Query)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return ids, err
}

// Parked implements [backend.Backend].
func (m *MySQL) Parked(ctx context.Context, filter backend.Filter, within int64, each func(storage.Parked)) error {
	where, held := conditions(filter), m.table.Held+" t"
	if !filter.ByID { // without the hint, MySQL would sort all parked rows before it returns the first one
		held += " FORCE INDEX (held_id)"
	}
	return backend.ReadParked(ctx, m.db, m.table, held, "substr(t.last_error, 1, 200)", "d.headers", "TRUE"+where.sql, where.args, filter, within, each)
}

// Check implements [backend.Backend]. It doesn't check the server's version, which the store has checked.
func (m *MySQL) Check(ctx context.Context, claim storage.Claim) []storage.Finding {
	findings := []storage.Finding{m.checkRights(ctx), m.checkHistory(ctx), m.checkTransactions(ctx)}
	probes := []backend.Probe{
		{Name: "read", Query: m.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
		{Name: "marks", Query: m.sql.Query("lanes with rows below their marks"), Judge: backend.List("messages are pending at or below the id up to which relays have read lane ",
			"the id sequence was reset, for example by TRUNCATE; such messages are delivered late and out of order: use DELETE to empty the table")},
	}
	explain := "EXPLAIN "
	if m.server == mysql8 { // in newer versions the default is another format, without columns
		explain = "EXPLAIN FORMAT=TRADITIONAL "
	}
	plan := m.page(backend.Read{Positions: []storage.Position{{Lane: 1, Until: 1 << 62}}, Limit: 500})
	if claim == storage.ByRows {
		plan = m.free(storage.ClaimRequest{Limit: 500})
		probes = append(probes, backend.RowIndexes(m.dialect.RowIndexes(m.table)))
	}
	plan.SQL = explain + plan.SQL
	return append(findings, backend.Findings(ctx, m.db, append(probes, backend.Probe{Name: "plan", Query: plan, Judge: judgePlan}))...)
}

// checkTransactions looks for an old transaction, because relays can't advance the lanes' marks until it ends. If the server
// can't list the transactions at the moment, the finding is OK, because a relay's store warns if lists remain unusable.
func (m *MySQL) checkTransactions(ctx context.Context) storage.Finding {
	oldest, err := backend.Lines(ctx, m.db, m.sql.Query("oldest transaction"))
	switch {
	case m.dialect.Busy(err):
		return storage.Finding{Name: "transactions", OK: true, Detail: "the server could not list the open transactions: " + err.Error() +
			"; error 3854 means that one of them was running a statement with an emoji or with bytes that are not text"}
	case err != nil:
		return storage.Finding{Name: "transactions", Detail: err.Error()}
	}
	wrong, hint := backend.List("a transaction that has written rows has been open since ",
		"end this transaction, because until then relays can't advance the lanes' marks, and each read scans all rows that were written since. Find it: SELECT trx_mysql_thread_id, trx_started, trx_query FROM information_schema.innodb_trx ORDER BY trx_started; then KILL ID")(oldest)
	return storage.Finding{Name: "transactions", OK: wrong == "", Detail: wrong, Hint: hint}
}

// checkHistory checks how many transactions InnoDB has yet to purge. The query needs the privilege PROCESS. If the user
// lacks this privilege, checkHistory reports no problem, because the finding "open transactions" reports the missing
// privilege.
func (m *MySQL) checkHistory(ctx context.Context) storage.Finding {
	length := 0
	if err := backend.One(ctx, m.db, m.sql.Query("history length"), &length); err != nil && !m.dialect.Denied(err) {
		return storage.Finding{Name: "history", Detail: err.Error()}
	}
	wrong, hint := judgeHistory(length)
	return storage.Finding{Name: "history", OK: wrong == "", Detail: wrong, Hint: hint}
}

// judgeHistory returns a problem and a hint if InnoDB has more than 500,000 transactions to purge. Until InnoDB purges a transaction,
// reads still scan the rows that it deleted.
func judgeHistory(length int) (wrong, hint string) {
	if length <= 500_000 {
		return "", ""
	}
	return fmt.Sprintf("InnoDB has not purged %d transactions, on all tables: reads still scan the rows that these transactions deleted", length),
		"end an old transaction, which prevents the purge. Find it: SELECT trx_mysql_thread_id, trx_started, trx_query FROM information_schema.innodb_trx ORDER BY trx_started LIMIT 5; then KILL ID. If no transaction is old, the purge is too slow: raise innodb_purge_threads"
}

// checkRights runs a statement for each privilege. Most statements are an EXPLAIN, which the server
// rejects if the privilege is missing. Unlike a list of grants, this check includes privileges from roles.
func (m *MySQL) checkRights(ctx context.Context) storage.Finding {
	var lacking []string
	for _, needed := range []struct{ name, column, rights string }{
		{m.table.Pending, "attempts", "SELECT INSERT UPDATE DELETE"}, {m.table.Held, "lane", "SELECT INSERT UPDATE DELETE"}, {m.table.Done, "lane", "SELECT INSERT UPDATE DELETE"}, {m.table.IDs, "", "SELECT DELETE"},
		{m.table.Lanes, "lane", "SELECT UPDATE"}, {m.table.LaneLocks, "lane", "SELECT UPDATE"}, {m.table.Relays, "host", "SELECT INSERT UPDATE DELETE"},
		{m.table.Settings, "value", "SELECT INSERT UPDATE"}, {m.table.Controls, "", "SELECT INSERT DELETE"}, {m.table.Actions, "changed", "SELECT INSERT UPDATE"}, {m.table.Messages, "", "SELECT"},
	} {
		for right := range strings.FieldsSeq(needed.rights) {
			if _, err := backend.Lines(ctx, m.db, try(right, needed.name, needed.column)); m.dialect.Denied(err) {
				lacking = append(lacking, right+" ON "+needed.name)
			} else if err != nil {
				return storage.Finding{Name: "rights", Detail: err.Error()}
			}
		}
	}
	var user string
	if err := backend.One(ctx, m.db, query("SELECT CURRENT_USER()"), &user); err != nil {
		return storage.Finding{Name: "rights", Detail: err.Error()}
	}
	name, host, _ := strings.Cut(user, "@")
	wrong, hint := backend.Lacks("'" + name + "'@'" + host + "'")(lacking)
	return storage.Finding{Name: "rights", OK: wrong == "", Detail: wrong, Hint: hint}
}

// try returns a statement that changes nothing, but needs the privilege that the first argument names.
func try(right, name, column string) backend.Query {
	switch right {
	case "INSERT":
		return query("EXPLAIN INSERT INTO " + name + " VALUES ()")
	case "DELETE":
		return query("EXPLAIN DELETE FROM " + name)
	case "UPDATE":
		return query("EXPLAIN UPDATE " + name + " SET " + column + " = ''")
	default:
		return query("SELECT 1 FROM " + name + " WHERE FALSE")
	}
}

// Explain implements [backend.Explainer].
func (m *MySQL) Explain(ctx context.Context, query backend.Query) (wrong string, err error) {
	explain := "EXPLAIN "
	if m.server == mysql8 {
		explain = "EXPLAIN FORMAT=TRADITIONAL "
	}
	statement := strings.TrimPrefix(query.SQL, m.unchecked)
	if into, selecting, found := strings.Cut(statement, "\nSELECT"); found && (strings.HasPrefix(into, "INSERT") || strings.HasPrefix(into, "REPLACE")) {
		selecting, _, _ = strings.Cut(selecting, "\nON DUPLICATE KEY")
		statement = "SELECT" + selecting // MariaDB 10.5 doesn't explain the whole statement
	}
	rows, err := m.db.QueryContext(ctx, explain+statement, query.Args[:min(len(query.Args), strings.Count(statement, "?"))]...)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return "", err
	}
	values, into := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
		line := map[string]string{}
		for i, name := range names {
			line[strings.ToLower(name)] = values[i].String
		}
		sorted := strings.Contains(line["extra"], "Using filesort") || strings.Contains(line["extra"], "Using temporary")
		counts := line["type"] == "index" && strings.Contains(line["extra"], "Using index") // such a scan reads the whole index, and other index scans end at a LIMIT
		if n, _ := strconv.Atoi(line["rows"]); n > 10_000 && (line["type"] == "ALL" || counts || sorted) && !strings.HasPrefix(line["table"], "<") {
			wrong = fmt.Sprintf("%s: type %s, key %s, %d rows %s", line["table"], line["type"], line["key"], n, line["extra"])
		}
	}
	return wrong, rows.Err()
}

// Sample implements [backend.Explainer].
func (m *MySQL) Sample(query string) [][]driver.Value {
	switch {
	case strings.HasPrefix(query, "SELECT 'lane'"):
		return [][]driver.Value{{"lane", int64(1), int64(1)}}
	case strings.HasPrefix(query, "SELECT id FROM"), strings.HasPrefix(query, "SELECT t.id FROM"), strings.HasPrefix(query, "SELECT t.id * 64"):
		return [][]driver.Value{{int64(65)}}
	}
	return nil
}

// judgePlan reports a plan that scans or sorts the whole table.
func judgePlan(answer []string) (wrong, hint string) {
	for _, line := range answer {
		if slices.Contains(strings.Fields(line), "ALL") || strings.Contains(line, "Using filesort") || strings.Contains(line, "Using temporary") {
			return "the relay's reads or claims scan or sort the whole table: " + strings.Join(strings.Fields(line), " "), "check that the table's indexes exist: rowrelay migrate print shows them"
		}
	}
	return "", ""
}
