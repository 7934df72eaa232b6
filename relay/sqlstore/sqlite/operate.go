package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// List implements [backend.Backend]. It reads each table that may have matching messages in the order
// of ids, and merges the rows up to the limit. If the filter limits the rows to examine, List reads about LookThrough rows after AfterID
// from each table.
func (s *SQLite) List(ctx context.Context, filter backend.Filter) ([]storage.Info, error) {
	var parts []string
	var args []any
	walk := func(columns, from, state, where string) {
		columns = s.sql.Text(columns)
		if filter.NoPayloads {
			columns = strings.Replace(columns, s.sql.Text("payload"), "NULL", 1)
		}
		given, values := conditions(filter)
		part, args2 := "SELECT "+columns+"\nFROM "+from+"\nWHERE "+where+given, values
		if filter.State != "" && state != "" {
			part, args2 = part+" AND "+s.sql.Text(state)+" = ?", append(args2, string(filter.State))
		}
		if filter.Bounded() {
			part += "\n    AND t.id <= coalesce((SELECT t.id FROM " + from + " WHERE " + where + "t.id > ? ORDER BY t.id LIMIT 1 OFFSET ?), 9223372036854775807)"
			args2 = append(args2, filter.AfterID, filter.LookThrough)
		}
		parts, args = append(parts, part), append(args, args2...)
	}
	switch filter.State {
	case "", storage.StatePending, storage.StateClaimed, storage.StateScheduled:
		walk("hot as listed", s.table.Pending+" AS t NOT INDEXED", "hot state", "")
	}
	switch filter.State {
	case storage.StateError: // there is an index of parked rows by id
		walk("held as listed", s.table.Held+" AS t INDEXED BY "+s.table.IndexName("held_error"), "", "t.state = 'error' AND ")
	case "", storage.StatePending, storage.StateScheduled, storage.StateRetry:
		walk("held as listed", s.table.Held+" AS t NOT INDEXED", "held state", "")
	}
	switch filter.State {
	case "", storage.StateDone:
		walk("done as listed", s.table.Done+s.byDoneID(), "", "")
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return backend.ReadInfos(ctx, s.db, query(strings.Join(parts, "\nUNION ALL ")+"\nORDER BY 1 LIMIT ?", append(args, int64(filter.Limit))...), filter.MaxBytes)
}

// conditions returns the conditions on a row t for the filter's fields that aren't empty, and their arguments.
func conditions(filter backend.Filter) (string, []any) {
	where, args := []string{"t.id > ?"}, []any{filter.AfterID}
	add := func(wanted bool, condition string, values ...any) {
		if wanted {
			where, args = append(where, condition), append(args, values...)
		}
	}
	add(filter.UntilID > 0, "t.id <= ?", filter.UntilID)
	add(filter.ByID && len(filter.MessageIDs) == 0, "t.id IN (SELECT value FROM json_each(?))", bind.JSON(filter.RowIDs))
	add(len(filter.MessageIDs) > 0, "(t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?)))",
		bind.JSON(filter.RowIDs), bind.JSON(filter.MessageIDs))
	add(filter.Topic != "", "t.topic = ?", filter.Topic)
	add(filter.TopicPrefix != "", "instr(t.topic, ?) = 1", filter.TopicPrefix)
	add(filter.Key != "", "t.message_key = ?", filter.Key)
	add(filter.Sink != "", "instr(',' || t.sinks || ',', ?) > 0", ","+filter.Sink+",")
	for _, bound := range filter.Times() {
		add(true, bound.Condition+"?", bound.At.UTC().Format(timeFormat))
	}
	add(filter.Holds, "t.holds = 1")
	add(filter.Error != "", "instr(t.last_error, ?) > 0", filter.Error)
	return strings.Join(where, " AND "), args
}

// ChangeParked implements [backend.Backend].
func (s *SQLite) ChangeParked(ctx context.Context, filter backend.Filter, what backend.ParkedChange) ([]int64, error) {
	where, values := conditions(filter)
	condition := what.Condition(s.table.Pending, s.table.Held, s.sql.Text("now"))
	if what == backend.RedirectPending {
		return s.redirectPending(ctx, filter.To, query("SELECT t.id FROM "+s.table.Pending+" AS t WHERE true"+condition+" AND "+where+" ORDER BY t.id LIMIT ?", append(values, int64(filter.Limit))...))
	}
	var args []any
	sets := what.Set(s.sql.Text("now"), "'9999-01-01 00:00:00.000'")
	if what.Redirects() {
		sets, args = sets+", sinks = ?", append(args, filter.To)
	}
	change := "UPDATE " + s.table.Held + " SET " + sets + "\nWHERE"
	if what.Deletes() {
		change = "DELETE FROM " + s.table.Held + " WHERE"
	}
	args = append(append(args, values...), int64(filter.Limit))
	return backend.IDs(ctx, s.db, query(change+" (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM "+s.table.Held+" AS t WHERE t.state = '"+string(what.State())+"'"+condition+" AND "+where+
		" ORDER BY t.id LIMIT ?) RETURNING id", args...))
}

// redirectPending moves pending rows to the held table as scheduled rows, with `to` as their sink. The query `pending` selects
// the rows' ids.
func (s *SQLite) redirectPending(ctx context.Context, to string, pending backend.Query) (ids []int64, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		var id int64
		if err := backend.All(ctx, tx, pending, func() { ids = append(ids, id) }, &id); err != nil {
			return err
		}
		const given = " WHERE t.id IN (SELECT value FROM json_each(?))"
		_, err := backend.Exec(ctx, tx,
			query("INSERT INTO "+s.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)"+
				"\nSELECT "+backend.KeptFor("?")+", 0, 0, t.available_at, t.last_error, t.attempt_log, 'scheduled', 0 FROM "+s.table.Pending+" AS t"+given, to, bind.JSON(ids)),
			query("DELETE FROM "+s.table.Pending+" AS t"+given, bind.JSON(ids)))
		return err
	})
	return ids, err
}

// Parked implements [backend.Backend].
func (s *SQLite) Parked(ctx context.Context, filter backend.Filter, within int64, each func(storage.Parked)) error {
	where, args := conditions(filter)
	return backend.ReadParked(ctx, s.db, s.table, s.table.Held+" t", "substr(t.last_error, 1, 200)", "d.headers", where, args, filter, within, each)
}

// Check implements [backend.Backend].
func (s *SQLite) Check(ctx context.Context, claim storage.Claim) []storage.Finding {
	probes := []backend.Probe{
		{Name: "server", Query: query("SELECT sqlite_version()"), Judge: judgeVersion},
		{Name: "journal", Query: query("PRAGMA journal_mode"), Judge: pragma("wal", "journal_mode is ", "open the file with journal_mode=WAL, so that readers don't block writers")},
		{Name: "busy timeout", Query: query("PRAGMA busy_timeout"), Judge: atLeast(1000, "busy_timeout is ", "open the file with a busy_timeout of at least 1000 ms, preferably 10000 ms")},
		{Name: "synchronous", Query: query("PRAGMA synchronous"), Judge: atLeast(1, "synchronous is ", "open the file with synchronous=NORMAL or FULL: with OFF, a power failure can lose commits or corrupt the file")},
		{Name: "read", Query: s.page(backend.Read{Limit: 1}), Judge: backend.Nothing},
	}
	plan := s.page(backend.Read{Positions: []storage.Position{{Lane: 1, Until: 1 << 62}}, Limit: 500})
	if claim == storage.ByRows {
		plan = s.claim(storage.ClaimRequest{Limit: 500})
		probes = append(probes, backend.RowIndexes(s.dialect.RowIndexes(s.table)))
	}
	plan.SQL = "EXPLAIN QUERY PLAN " + plan.SQL
	findings := backend.Findings(ctx, s.db, append(probes, backend.Probe{Name: "plan", Query: plan, Judge: s.judgePlan}))
	return append(findings, s.checkWAL(ctx))
}

// largeWAL is the size in bytes above which a check reports the write-ahead log. By default, SQLite runs a checkpoint when the log has
// 1,000 pages, which is far less.
const largeWAL = 64 << 20

// checkWAL checks the size of the write-ahead log, which every read searches. The log grows as long as a
// reader keeps a transaction open.
func (s *SQLite) checkWAL(ctx context.Context) storage.Finding {
	finding := storage.Finding{Name: "write-ahead log", OK: true}
	var number int
	var name, path string
	err := backend.All(ctx, s.db, query("PRAGMA database_list"), func() {
		info, err := os.Stat(path + "-wal")
		if path == "" || err != nil || info.Size() <= largeWAL || name != cmp.Or(s.table.Schema, "main") {
			return
		}
		finding.OK, finding.Detail = false, fmt.Sprintf("the log has %d MiB, and every read searches it: a reader keeps a transaction open", info.Size()>>20)
		finding.Hint = "end idle programs that have the file open (fuser " + path + " lists them), then run sqlite3 " + path + " 'PRAGMA wal_checkpoint(TRUNCATE)'"
	}, &number, &name, &path)
	if err != nil {
		finding.OK, finding.Detail = false, err.Error()
	}
	return finding
}

func judgeVersion(answer []string) (wrong, hint string) {
	parts := strings.Split(answer[0], ".")
	major, _ := strconv.Atoi(parts[0])
	minor := 0
	if len(parts) > 1 {
		minor, _ = strconv.Atoi(parts[1])
	}
	if major < 3 || major == 3 && minor < 35 {
		return "SQLite has version " + answer[0], "3.35 or later is needed"
	}
	return "", ""
}

func pragma(want, wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if strings.EqualFold(answer[0], want) {
			return "", ""
		}
		return wrong + answer[0], hint
	}
}

func atLeast(least int, wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if value, err := strconv.Atoi(answer[0]); err == nil && value >= least {
			return "", ""
		}
		return wrong + answer[0], hint
	}
}

// Explain implements [backend.Explainer]. It ignores scans of a table with the alias h, because statements read such a table
// only up to a limit. SQLite plans such a scan only if the statistics show that it costs less than the use of an index.
func (s *SQLite) Explain(ctx context.Context, query backend.Query) (wrong string, err error) {
	plan, err := backend.Lines(ctx, s.db, backend.Query{SQL: "EXPLAIN QUERY PLAN " + query.SQL, Args: query.Args})
	if err != nil {
		return "", err
	}
	for _, line := range plan {
		for _, name := range []string{"t", s.table.Name, s.table.Name + "_held", s.table.Name + "_done"} {
			if strings.HasSuffix(line, " SCAN "+name) {
				return line, nil
			}
		}
	}
	return "", nil
}

// Sample implements [backend.Explainer].
func (s *SQLite) Sample(query string) [][]driver.Value {
	if strings.HasPrefix(query, "SELECT 'lane'") {
		return [][]driver.Value{{"lane", int64(1), int64(1)}}
	}
	return nil
}

// judgePlan reports a plan that scans or sorts the whole table.
func (s *SQLite) judgePlan(answer []string) (wrong, hint string) {
	for _, line := range answer {
		if strings.Contains(line, "TEMP B-TREE FOR ORDER BY") || strings.HasSuffix(line, "SCAN t") || strings.HasSuffix(line, "SCAN "+s.table.Name) {
			return "the relay's reads or claims scan or sort the whole table: " + line, "check that the table's indexes exist: rowrelay migrate print shows them"
		}
	}
	return "", ""
}
