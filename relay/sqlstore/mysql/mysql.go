// Package mysql implements [backend.Backend] for MySQL 8.0.13 and later and MariaDB 10.5 and
// later. Fixed statements are in mysql.sql; the Go files build the statements that depend
// on the request.
package mysql

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed mysql.sql
var file string

// MySQL is the backend of a table in MySQL or MariaDB.
type MySQL struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	server  string // the dialect's name
	skips   bool   // whether a locking SELECT can skip rows that other transactions have locked
	named   []any  // the arguments of the text {named} in mysql.sql
	sql     backend.Statements

	unchecked string // the text {unchecked} in mysql.sql
}

var _ backend.TransactionLister = (*MySQL)(nil)

// The names of the servers' dialects.
const (
	mysql8  = "mysql"
	mariaDB = "mariadb"
)

// start is an expression whose value changes when a server is restarted: the clock sequence and the node of its UUIDs. The server
// chooses the 14 bits of the clock sequence at random when it starts, so on average one of 16,384 restarts doesn't change them. The
// bits also change if the system's clock is set back
// (https://dev.mysql.com/doc/refman/8.4/en/miscellaneous-functions.html#function_uuid). A server has no variable with the time of its
// start, and its status variables are too slow to be read with each page.
const start = "RIGHT(UUID(), 17)"

// New returns the backend of a table. The dialect must match the server.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *MySQL {
	m := &MySQL{db: db, dialect: d, table: table.Backquoted(), server: d.Name(), skips: dialect.SkipsLocked(d)}
	words := map[string]string{
		"skip": "", "skip t": "", "lock t": " FOR UPDATE", "unchecked": "",
		"server": "CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', " + start + ")",
		"named":  "table_schema = database() AND table_name = ?",
	}
	m.named = []any{table.Name}
	if table.Schema != "" {
		words["named"] = "table_schema = ? AND table_name = ?"
		m.named = []any{table.Schema, table.Name}
	}
	if m.skips {
		words["skip"], words["skip t"] = " FOR UPDATE SKIP LOCKED", " FOR UPDATE SKIP LOCKED"
	}
	switch m.server {
	case mysql8:
		words["lock t"] = " FOR UPDATE OF t"
		if m.skips {
			words["skip t"] = " FOR UPDATE OF t SKIP LOCKED"
		}
	case mariaDB: // MariaDB has no server_uuid
		words["unchecked"] = "SET STATEMENT check_constraint_checks = 0 FOR\n"
		words["server"] = "CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', " + start + ")"
	}
	m.sql, m.unchecked = backend.ParseStatements(file, m.table, words), words["unchecked"]
	return m
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// Capabilities implements [backend.Backend]. A read covers all lanes together, in the order of ids, because one range for each
// lane would be slow on MariaDB, and would save little on MySQL. MariaDB doesn't pass the end of a range to InnoDB, so the read of
// a lane continues up to the first existing row of a later lane. If an old snapshot prevents the purge of deleted rows, the read
// scans all deleted rows before that row. MySQL passes the end to InnoDB, but a range for each lane is expensive to plan: in a
// measurement, reads of few rows took 1.4 times the CPU time, and the delivery of a full table became only 3 % faster.
func (m *MySQL) Capabilities() backend.Capabilities {
	capabilities := backend.Capabilities{
		Tx: readCommitted, Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkByID, WithTimeLimit: m.withTimeLimit,
		Pending: m.table.Pending, Statements: m.sql,
		Queries: backend.Queries{
			Members:     m.sql.Query("members"),
			PurgeRelays: m.sql.Query("purge relays"),
			LastID:      m.sql.Query("last id", m.named...),
			WrittenFrom: m.sql.Query("written from", int64(0), int64(0)),
			FreeRow:     m.sql.Query("a free row"),
			EndedClaim:  m.sql.Query("an ended claim"),
			Status: backend.StatusQueries{
				Counts: m.sql.Fill("counts", []string{":limit", number(backend.Counted)}), Claimed: m.sql.Query("count claimed"), Estimates: m.sql.Query("estimates"), Oldest: m.sql.Fill("oldest", []string{":limit", number(backend.FirstRows)}), OldestRetry: m.sql.Query("oldest retry"), Held: m.sql.Query("held parked"),
				Topics: m.sql.Fill("topics", []string{":limit", number(backend.SampledTopics)}), Relays: m.sql.Query("list relays"), Leased: m.sql.Query("lanes leased"),
			},
		},
	}
	return capabilities
}

func (m *MySQL) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, m.db, readCommitted, nil, work)
}

// inTurn runs the function `work` in a transaction. If the server can't skip locked rows, the transaction first locks
// a row by the statement "turn", so that only one such transaction can run at a time.
func (m *MySQL) inTurn(ctx context.Context, work func(*sql.Tx) error) error {
	var turn []backend.Query
	if !m.skips {
		turn = append(turn, m.sql.Query("turn"))
	}
	return backend.InTx(ctx, m.db, readCommitted, turn, work)
}

// text is a statement or a part of a statement. Numbers are written into the SQL; texts are arguments.
type text struct {
	sql  string
	args []any
}

// join concatenates its parts, each a text or a string of SQL.
func join(parts ...any) (t text) {
	var sql strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case text:
			sql.WriteString(part.sql)
			t.args = append(t.args, part.args...)
		case string:
			sql.WriteString(part)
		}
	}
	t.sql = sql.String()
	return t
}

func arg(value any) text { return text{"?", []any{value}} }

func (t text) query() backend.Query { return backend.Query{SQL: t.sql, Args: t.args} }

func query(sql string, args ...any) backend.Query { return backend.Query{SQL: sql, Args: args} }

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

func microseconds(by time.Duration) string { return number(by.Microseconds()) }

// arguments returns a list of `count` placeholders for IN.
func arguments(count int) string {
	if count == 0 {
		return "(NULL)"
	}
	return "(?" + strings.Repeat(",?", count-1) + ")"
}

func texts(values []string) []any {
	return backend.Column(values, func(value *string) any { return *value })
}

// timestamp formats a time in UTC. The zero time is in the year 1, before all other times.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000000") }

// SetClaimMode implements [backend.Backend].
func (m *MySQL) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return m.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, m.sql, m.dialect, m.table, claim, m.sql.Query("set claim mode", string(claim), string(claim)))
	})
}

// Heartbeat implements [backend.Backend].
func (m *MySQL) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	claim, setup := string(self.Claim), self.Config.Text()
	err = backend.InTx(ctx, m.db, readCommitted, []backend.Query{
		m.sql.Query("share claim mode"),
		m.sql.Fill("heartbeat", []string{":ttl", microseconds(ttl)}, self.Name, self.Host, self.Version, claim, setup, claim, self.Host, self.Version, claim, setup),
	}, func(tx *sql.Tx) error {
		return backend.All(ctx, tx, m.sql.Query("heartbeat was stored", self.Name, claim), func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
	})
	return beat, err
}

// Acquire implements [backend.Backend].
func (m *MySQL) Acquire(ctx context.Context, relay string, count int, ttl time.Duration, step int64) (grants []storage.Grant, xid uint64, err error) {
	free := "free lanes"
	if !m.skips {
		free = "free lanes in turn"
	}
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		grants, xid, err = backend.Grants(ctx, tx, m.sql.Fill(free, []string{":step", number(step), ":limit", number(count)}))
		if err != nil || len(grants) == 0 {
			return err
		}
		lanes := backend.NumberList(backend.Column(grants, grantedLane))
		if !m.skips {
			if _, err := backend.Exec(ctx, tx, m.sql.Fill("wait for settles", []string{":lanes", lanes})); err != nil {
				return err
			}
		}
		_, err := backend.Exec(ctx, tx, m.sql.Fill("acquire", []string{":step", number(step), ":ttl", microseconds(ttl), ":lanes", lanes}, relay))
		return err
	})
	return grants, xid, err
}

func grantedLane(g *storage.Grant) int { return g.Lane }
func leasedLane(l *storage.Lease) int  { return l.Lane }

// ChangeLeases implements [backend.Backend]. It locks the lanes whose leases are still valid,
// and then changes them.
func (m *MySQL) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) (held []storage.Lease, xid uint64, err error) {
	lanes, pairs := leaseLists(backend.Column(leases, func(l *backend.Lease) storage.Lease { return l.Lease }))
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		held, xid, err = backend.Leases(ctx, tx, m.sql.Fill("leases that hold", []string{":lanes", lanes, ":leases", pairs}, change.Relay))
		if err != nil || len(held) == 0 {
			return err
		}
		var set text
		switch change.Kind {
		case backend.Renew:
			set = join("`until` = utc_timestamp(6) + INTERVAL "+microseconds(change.TTL)+" MICROSECOND, marks = ", m.marks(change.Epoch, leases))
			var calm []int
			for _, l := range leases {
				if l.Calm {
					calm = append(calm, l.Lane)
				}
			}
			if len(calm) > 0 {
				in := "CASE WHEN lane IN " + backend.NumberList(calm)
				set.sql += ", crashes = " + in + " THEN 0 ELSE crashes END, journal = " + in + " THEN NULL ELSE journal END"
			}
		case backend.Release:
			set = join("owner = NULL, `until` = NULL, journal = NULL, crashes = 0, marks = ", m.marks(change.Epoch, leases))
		case backend.WriteJournal:
			set = join("journal = ", byLane(leases, "journal", func(l backend.Lease) string { return l.Journal }))
		}
		_, err := backend.Exec(ctx, tx, join("UPDATE "+m.table.Lanes+" FORCE INDEX (PRIMARY) SET ", set,
			" WHERE lane IN "+backend.NumberList(backend.Column(held, leasedLane))).query())
		return err
	})
	return held, xid, err
}

// leaseLists returns two SQL lists: one of the lanes, and one of the pairs of lane and fence.
func leaseLists(leases []storage.Lease) (lanes, pairs string) {
	for i, l := range leases {
		if i > 0 {
			pairs += ","
		}
		pairs += "(" + number(l.Lane) + "," + number(l.Fence) + ")"
	}
	return backend.NumberList(backend.Column(leases, leasedLane)), pairs
}

// marks returns an expression for the given marks, or for the stored marks if the given ones were made in another epoch.
func (m *MySQL) marks(epoch string, leases []backend.Lease) text {
	marks := byLane(leases, "marks", func(l backend.Lease) string { return l.Marks })
	if epoch == "" {
		return marks
	}
	return join("CASE WHEN "+m.sql.Text("server")+" <> ", arg(epoch), " THEN marks ELSE ", marks, " END")
}

// byLane returns a CASE expression for the value of the lease that has the row's lane. The second argument is the
// expression for rows whose lane has no lease.
func byLane(leases []backend.Lease, otherwise string, value func(backend.Lease) string) text {
	parts := []any{"CASE lane"}
	for _, l := range leases {
		parts = append(parts, " WHEN "+number(l.Lane)+" THEN ", arg(value(l)))
	}
	return join(append(parts, " ELSE "+otherwise+" END")...)
}

// Grant implements [backend.TransactionLister].
func (m *MySQL) Grant() string { return "PROCESS ON *.*" }

// ListOpen implements [backend.TransactionLister].
func (m *MySQL) ListOpen(ctx context.Context, token string) (list backend.OpenList, err error) {
	err = backend.InTx(ctx, m.db, readCommitted, []backend.Query{m.sql.Query("take a number")}, func(tx *sql.Tx) error {
		list, err = backend.ReadOpenList(ctx, tx, m.sql.Fill("open transactions", []string{":token", token}))
		return err
	})
	return list, err
}

// Read implements [backend.Backend].
func (m *MySQL) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	line, _, err := backend.ReadPage(ctx, m.db, nil, m.page(page), take)
	return line, err
}

// page returns the query of a read. The query uses the index on ids. Only reads of keys, which are rare, use another
// index. Every row of the result begins with the text of the [backend.FirstLine]. Without positions, the query selects
// only this text. It doesn't use MaxBytes, because the store sets a Limit that fits.
func (m *MySQL) page(page backend.Read) backend.Query {
	if len(page.Positions) == 0 {
		return m.sql.Query("first line")
	}
	return m.walk(m.sql.Text("first")+", "+m.sql.Text("hot row"), page.Positions, page.Except, page.Limit)
}

// Candidates implements [backend.Backend].
func (m *MySQL) Candidates(positions []storage.Position, except []string, limit int) backend.Query {
	columns := "t.id, t.lane, t.topic, t.message_key, t.sinks, coalesce(length(t.payload), length(t.payload_text), 0)"
	return m.walk(columns, positions, except, limit)
}

// withTimeLimit returns the SELECT with a time limit that the server enforces, in the syntax of [MySQL] or [MariaDB].
//
// [MySQL]: https://dev.mysql.com/doc/refman/8.4/en/optimizer-hints.html#optimizer-hints-execution-time
// [MariaDB]: https://mariadb.com/kb/en/set-statement/
func (m *MySQL) withTimeLimit(statement string, limit time.Duration) string {
	if m.server == mariaDB {
		return "SET STATEMENT max_statement_time = " + strconv.FormatFloat(limit.Seconds(), 'f', -1, 64) + " FOR\n" + statement
	}
	return strings.Replace(statement, "SELECT ", "SELECT /*+ MAX_EXECUTION_TIME("+number(limit.Milliseconds())+") */ ", 1)
}

// walk returns a query for the given columns of the rows at the positions; the table's alias is t. Without keys, the query uses
// the index on ids. With keys, it uses the primary key. One SELECT reads successive positions with ascending lanes. If the lane
// of a position isn't higher than the previous lane, another SELECT begins. The query names the index, because with wrong or
// missing statistics a server would read and sort the whole table. It compares excepted topics as bytes, because the collation
// ignores spaces at the end.
func (m *MySQL) walk(columns string, positions []storage.Position, except []string, limit int) backend.Query {
	otherThan := ""
	if len(except) > 0 {
		otherThan = " AND (CAST(t.topic AS BINARY) NOT IN " + arguments(len(except)) + " OR t.sinks <> '')"
	}
	if positions[0].Key == "" {
		whole := backend.Whole(positions) // one range of the index on ids, whose entries also contain the lane
		return query("SELECT "+columns+" FROM "+m.table.Pending+" AS t FORCE INDEX (id)"+
			" WHERE "+within(whole)+" AND "+backend.WithinWhole(positions)+otherThan+" ORDER BY t.id LIMIT "+number(limit), texts(except)...)
	}
	var parts []string
	var args []any
	for len(positions) > 0 { // add a SELECT for the first positions with ascending lanes
		n := 1
		for n < len(positions) && positions[n].Lane > positions[n-1].Lane {
			n++
		}
		var among backend.Alternatives
		for _, p := range positions[:n] {
			among.Add(p.Lane, "t.lane = "+number(p.Lane)+" AND "+within(p)+" AND t.message_key = ?")
			args = append(args, p.Key)
		}
		parts = append(parts, "SELECT "+columns+" FROM "+m.table.Pending+" AS t FORCE INDEX (PRIMARY)"+
			" WHERE "+among.Condition()+" ORDER BY t.lane, t.id LIMIT "+number(limit))
		positions = positions[n:]
	}
	if len(parts) == 1 { // omit the parentheses, because with them the server copies the rows before it sends them
		return query(parts[0], args...)
	}
	return query("("+strings.Join(parts, ")\nUNION ALL (")+")\nLIMIT "+number(limit), args...)
}

// within returns the condition that the id of a row t is in the position's range.
func within(p storage.Position) string {
	where := "t.id > " + number(p.After)
	if p.Until < 1<<63-1 {
		where += " AND t.id <= " + number(p.Until)
	}
	return where
}

// Pick implements [backend.Backend].
func (m *MySQL) Pick(rows []storage.RowID, held bool) backend.Query {
	if !held {
		return m.pick(rows)
	}
	return query("SELECT " + m.sql.Text("held row") + " FROM " + m.table.Held + " AS t FORCE INDEX (PRIMARY)" +
		"\nWHERE t.state <> 'error' AND " + among(rows))
}

func (m *MySQL) pick(rows []storage.RowID) backend.Query {
	return query("SELECT " + m.sql.Text("hot row") + " FROM " + m.table.Pending + " AS t FORCE INDEX (PRIMARY)\nWHERE " + among(rows))
}

// among returns the condition that t is one of the rows, which may be in any order. It has a list
// of ids for each lane, from which all servers make ranges of the primary key.
func among(rows []storage.RowID) string {
	var order []int
	ids := map[int][]int64{}
	for _, row := range rows {
		if ids[row.Lane] == nil {
			order = append(order, row.Lane)
		}
		ids[row.Lane] = append(ids[row.Lane], row.ID)
	}
	if len(order) == 0 {
		return "FALSE"
	}
	parts := backend.Column(order, func(lane *int) string {
		return "(t.lane = " + number(*lane) + " AND t.id IN " + backend.NumberList(ids[*lane]) + ")"
	})
	return "(" + strings.Join(parts, "\n    OR ") + ")"
}

// AttemptLogs implements [backend.Backend].
func (m *MySQL) AttemptLogs(rows []storage.RowID, held bool) backend.Query {
	from := m.table.Pending
	if held {
		from = m.table.Held
	}
	return query("SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log FROM " + from + " AS t FORCE INDEX (PRIMARY)" +
		"\nWHERE t.attempt_log IS NOT NULL AND " + among(rows))
}

// Due implements [backend.Backend].
func (m *MySQL) Due(lanes []int, after storage.DueCursor, limit, _ int) backend.Query {
	return m.sql.Fill("due", []string{
		":time", timestamp(after.At), ":id", number(after.ID), ":lanes", backend.NumberList(lanes), ":limit", number(limit),
	})
}

// BlockedKeys implements [backend.Backend].
func (m *MySQL) BlockedKeys(lanes []int, limit int) backend.Query {
	return m.sql.Fill("blocked keys", []string{":lanes", backend.NumberList(lanes), ":limit", number(limit)})
}

// BlockedAmong implements [backend.Backend]. The condition of its query has a list of keys for each
// lane, from which all servers make ranges of the index. The query groups keys as bytes, because
// the collation ignores spaces at the end.
func (m *MySQL) BlockedAmong(keys []storage.LaneKey) backend.Query {
	names := map[int][]any{}
	for _, key := range keys {
		names[key.Lane] = append(names[key.Lane], key.Key)
	}
	var where []string
	var args []any
	for _, lane := range slices.Sorted(maps.Keys(names)) {
		where = append(where, "t.blocks = "+number(lane)+" AND t.message_key IN "+arguments(len(names[lane])))
		args = append(args, names[lane]...)
	}
	return query("SELECT t.lane, CAST(t.message_key AS BINARY) AS held_key, CAST(t.topic AS BINARY) AS held_topic, CAST(t.sinks AS BINARY) AS held_sinks, MIN(t.id)"+
		" FROM "+m.table.Held+" AS t FORCE INDEX (held_retry)"+
		"\nWHERE ("+strings.Join(where, "\n    OR ")+")"+
		"\nGROUP BY t.lane, held_key, held_topic, held_sinks ORDER BY NULL", args...)
}

// Remaining implements [backend.Backend].
func (m *MySQL) Remaining(limit int) backend.Query {
	return m.sql.Fill("remaining", []string{":limit", number(limit)})
}

// Claim implements [backend.Backend].
func (m *MySQL) Claim(ctx context.Context, request storage.ClaimRequest) (claimed []storage.Row, err error) {
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		claimed, err = backend.ReadFree(ctx, tx, m.free(request), request.MaxBytes, m.pick)
		if err != nil || len(claimed) == 0 {
			return err
		}
		ids := backend.NumberList(backend.Column(claimed, func(row *storage.Row) int64 { return row.ID }))
		_, err := backend.Exec(ctx, tx, m.sql.Fill("claim", []string{":ttl", microseconds(request.TTL), ":ids", ids}, request.Relay, request.Token))
		return err
	})
	return claimed, err
}

// free returns the query that selects and locks the free rows for a claim. It names the
// index that has the claim's order, because a sort would lock all free rows. If MaxBytes is
// set, the query leaves out payloads larger than twice MaxBytes/Limit, so that it never reads
// much more than the claim takes. [backend.ReadFree] then reads the payloads that were left
// out, if their rows are claimed.
func (m *MySQL) free(request storage.ClaimRequest) backend.Query {
	index, order := "claim_id", "t.id"
	switch request.Pick {
	case storage.Newest:
		order = "t.id DESC"
	case storage.Priority:
		index, order = "claim_priority", "t.urgency, t.id"
	}
	columns := m.sql.Text("hot row")
	if request.MaxBytes > 0 {
		size, payload := m.sql.Text("size"), m.sql.Text("payload")
		large := size + " > " + number(2*request.MaxBytes/max(1, request.Limit))
		columns = strings.Replace(columns, payload, "CASE WHEN "+large+" THEN NULL ELSE "+payload+" END", 1) +
			" + CASE WHEN " + large + " THEN " + number(backend.SizeOne) + " * " + size + " ELSE 0 END"
	}
	topics := ""
	if len(request.Topics) > 0 {
		topics += " AND CAST(t.topic AS BINARY) IN " + arguments(len(request.Topics))
	}
	if len(request.Except) > 0 {
		topics += " AND CAST(t.topic AS BINARY) NOT IN " + arguments(len(request.Except))
	}
	return query("SELECT "+columns+"\nFROM "+m.table.Pending+" AS t FORCE INDEX ("+index+") WHERE "+m.sql.Text("claimed by rows")+" t.claimed_until IS NULL"+topics+
		"\nORDER BY "+order+" LIMIT "+number(request.Limit)+m.sql.Text("skip"), append(texts(request.Topics), texts(request.Except)...)...)
}

// Extend implements [backend.Backend].
func (m *MySQL) Extend(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
	asked := []string{":ids", backend.NumberList(ids)}
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		locked, err := backend.IDs(ctx, tx, m.sql.Fill("lock still claimed", asked, token))
		if err != nil {
			return err
		}
		if len(locked) > 0 {
			if _, err := backend.Exec(ctx, tx, m.sql.Fill("extend", []string{":ttl", microseconds(ttl), ":ids", backend.NumberList(locked)})); err != nil {
				return err
			}
		}
		still, err = backend.IDs(ctx, tx, m.sql.Fill("still claimed", asked, token)) // including rows that other transactions have locked
		return err
	})
	return still, err
}

// Reclaim implements [backend.Backend].
func (m *MySQL) Reclaim(ctx context.Context, limit int) (freed int, err error) {
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		ids, err := backend.IDs(ctx, tx, m.sql.Fill("ended claims", []string{":limit", number(limit)}))
		if err != nil || len(ids) == 0 {
			return err
		}
		freed = len(ids)
		_, err = backend.Exec(ctx, tx, m.sql.Fill("free ended claims", []string{":ids", backend.NumberList(ids)}))
		return err
	})
	if err != nil {
		return 0, err
	}
	err = m.inTurn(ctx, func(tx *sql.Tx) error {
		places, err := backend.IDs(ctx, tx, m.sql.Fill("due places", []string{":limit", number(limit)}))
		if err != nil {
			return err
		}
		freed += len(places)
		return m.bringBack(ctx, tx, places)
	})
	return freed, err
}

// bringBack inserts held rows into the table outbox, and then deletes the inserted rows from the held table. The last
// argument has the number id * 64 + lane for each row. Other held rows with the same id stay.
func (m *MySQL) bringBack(ctx context.Context, tx *sql.Tx, places []int64) error {
	rows := backend.Column(places, func(place *int64) storage.RowID { return storage.RowID{Lane: int(*place % 64), ID: *place / 64} })
	slices.SortFunc(rows, func(a, b storage.RowID) int { return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.ID, b.ID)) })
	for part := range slices.Chunk(rows, mostGiven) {
		keys := &given{server: m.server, settlements: backend.Column(part, func(row *storage.RowID) storage.Settlement { return storage.Settlement{Lane: row.Lane, ID: row.ID} })}
		remove := join("DELETE t FROM ", keys.table(), m.table.Held+" AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id"+
			"\nSTRAIGHT_JOIN "+m.table.Pending+" AS h FORCE INDEX (PRIMARY) ON h.lane = t.lane AND h.id = t.id AND h.message_id = t.message_id AND h.sinks = t.sinks")
		if _, err := backend.Exec(ctx, tx, m.sql.Fill("bring back", []string{":rows", among(part)}), remove.query()); err != nil {
			return err
		}
	}
	return nil
}
