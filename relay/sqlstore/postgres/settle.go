package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A settle is one statement with common table expressions (CTEs). It has only the CTEs that its settlements need:
//
//	held     selects the leases that are still valid, and locks their lanes against a takeover; only when claiming by lanes.
//	given    has the settlements, as lists of ids or as rows; when claiming by lanes, only those with valid leases.
//	found    has the rows of the settlements, with their tokens; only when claiming by rows.
//	claimed  has the found rows that still have the claim's token; only when claiming by rows, and if not all rows are done.
//	hot      deletes the rows of the table outbox that are done or move to the held table.
//	back     deletes the rows of the held table that are done.
//	done     inserts the done rows of hot and back into the done table, if done rows are kept.
//	moved    inserts the other rows of hot into the held table.
//	stayed   updates the rows that stay in the held table.
//	freed    updates the claimed rows that are released.
//
// The statement returns the number of changed rows, the transaction's number, and what statement.facts selects.

// statement builds a statement that begins with CTEs.
type statement struct {
	args
	parts   []string // the CTEs
	changes []string // the names of the CTEs whose rows count as changed
	facts   string   // selects the valid leases, or the number of rows that belong to another relay now
}

// Settle implements [backend.Backend]. It runs one statement. If there are dead letters, it first
// writes them, in the same transaction. In most batches all rows are pending rows that are done.
func (p *Postgres) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (settled backend.Settled, err error) {
	groups := backend.GroupsOf(settlements)
	plain := len(groups.HotDone) == len(settlements) && !backend.NamesSinks(&settlements[0])
	if plain {
		// No row is parked, so there is no dead letter.
	} else if letters := p.deadLetters(relay, settlements); len(letters) > 0 {
		if tx == nil {
			err = backend.InTx(ctx, p.db, readCommitted, nil, func(tx *sql.Tx) error {
				settled, err = p.Settle(ctx, tx, relay, keep, settlements)
				return err
			})
			return settled, err
		}
		if _, err := backend.Exec(ctx, tx, letters...); err != nil {
			return settled, err
		}
	}
	with := &statement{args: make(args, 0, 16), parts: make([]string, 0, 8), facts: "'lane', lane, fence FROM held"}
	if settlements[0].Token == "" {
		p.leasesThatHold(with, relay, settlements)
	}
	if plain {
		p.settleDone(with, relay, keep, settlements)
	} else {
		p.settleEach(with, relay, keep, settlements, groups)
	}
	if tx != nil {
		return p.run(ctx, tx, with)
	}
	return p.run(ctx, p.db, with)
}

// leasesThatHold adds a CTE `held`, which selects the leases that are still valid and locks their
// lanes FOR KEY SHARE. A takeover locks a lane FOR UPDATE, so it skips a lane that is being settled.
// A settle that waits for a takeover finds the lane's new fence after the wait. A renewal and a settle
// don't wait for each other, because the renewal changes no key.
func (p *Postgres) leasesThatHold(with *statement, relay string, settlements []storage.Settlement) {
	leases := backend.LeasesOf(settlements)
	with.parts = append(with.parts, "held AS MATERIALIZED (SELECT l.lane, l.fence FROM "+p.table.Lanes+" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest("+
		with.add(dialect.PostgresArray(backend.Column(leases, func(l *storage.Lease) int { return l.Lane })), "smallint[]")+", "+
		with.add(dialect.PostgresArray(backend.Column(leases, func(l *storage.Lease) int64 { return l.Fence })), "bigint[]")+") AS u (lane, fence)) AS s"+
		" ON l.lane = s.lane AND l.fence = s.fence AND l.owner = "+with.add(relay, "text")+" ORDER BY l.lane FOR KEY SHARE OF l)")
}

// run runs the statement and reads its result.
func (p *Postgres) run(ctx context.Context, q backend.Querier, with *statement) (backend.Settled, error) {
	query := "WITH " + strings.Join(with.parts, ",\n") +
		"\nSELECT 'changed', (SELECT count(*) FROM " + strings.Join(with.changes, ") + (SELECT count(*) FROM ") + "), 0::bigint" +
		"\nUNION ALL SELECT 'xid', " + p.sql.Text("xid") + ", 0" +
		"\nUNION ALL SELECT " + with.facts +
		"\nWHERE " + p.planNow(&with.args)
	return backend.ReadSettled(ctx, q, backend.Query{SQL: query, Args: with.args})
}

// SettleParts implements [backend.Backend]. It runs the statements for dead letters, and then one statement.
// That statement has the CTEs `held` and `given`, as in [Postgres.Settle], and the following ones. The CTEs `hot` and `back` reduce the
// sinks of a row to those that still need the message, and return the row with the settled sinks:
//
//	hot     updates rows of the table outbox.
//	back    updates rows of the held table.
//	parted  has the rows of hot and back, with the values of their settlements.
//	done    inserts the done rows of parted into the done table, if done rows are kept.
//	moved   inserts the other rows of parted, except discarded ones, into the held table; only if such rows exist.
func (p *Postgres) SettleParts(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (backend.Settled, error) {
	if _, err := backend.Exec(ctx, tx, p.deadLetters(relay, settlements)...); err != nil {
		return backend.Settled{}, err
	}
	with := &statement{facts: "'lane', lane, fence FROM held"}
	p.leasesThatHold(with, relay, settlements)
	c := &given{args: &with.args}
	c.rows(settlements)
	c.outcomes(settlements)
	add(c, "sinks", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Sinks }))
	add(c, "part", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.For }))
	add(c, "rest", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Left }))
	tables, log := backend.PartsOf(settlements, keep), ""
	if slices.ContainsFunc(tables, func(parts backend.Parts) bool { return len(parts.Held) > 0 }) {
		add(c, "attempt_log", "text", backend.Column(settlements, backend.AttemptLog))
		log = ", " + newLog + " AS attempt_log"
	}
	with.parts = append(with.parts, "given AS MATERIALIZED ("+c.from()+" JOIN held USING (lane, fence))")
	var parted []string
	for _, parts := range tables {
		name, table, where := "hot", p.table.Pending, "NOT g.held"
		if parts.Deferred {
			name, table, where = "back", p.table.Held, "g.held AND t.state <> 'error' AND "+backend.Undecided
		}
		with.changes, parted = append(with.changes, name), append(parted, "SELECT * FROM "+name)
		with.parts = append(with.parts, name+" AS (UPDATE "+table+" AS t SET sinks = g.rest"+
			"\n    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM "+table+theRowOfSinks+") AS x) AS g"+
			"\n    WHERE t.ctid = g.place AND "+where+
			"\n    RETURNING "+backend.KeptFor("g.part AS sinks")+", g.attempts, g.crashes, "+newAvailable+" AS available_at, "+newError+" AS last_error, g.state, g.receipt, g.holds"+log+")")
	}
	with.parts = append(with.parts, "parted AS ("+strings.Join(parted, " UNION ALL ")+")")
	if keep {
		with.parts = append(with.parts, p.done("SELECT * FROM parted WHERE state = 'done'", with.add(relay, "text")))
	}
	if log != "" {
		with.parts = append(with.parts, p.moved("parted WHERE state NOT IN ('done', 'discarded')"))
	}
	return p.run(ctx, tx, with)
}

// deadLetters returns the statements that write dead letters. They run before the rows are moved, and
// lock the rows. A concurrent settle of the same rows waits until the rows have moved, and then doesn't
// find them.
func (p *Postgres) deadLetters(relay string, settlements []storage.Settlement) (queries []backend.Query) {
	hot, held := backend.DeadLettersOf(settlements)
	for _, some := range [][]storage.Settlement{hot, held} {
		if len(some) == 0 {
			continue
		}
		with, claim, from, where := &statement{}, "", p.table.Pending, ""
		if some[0].Token == "" {
			p.leasesThatHold(with, relay, some)
			claim = " JOIN held USING (lane, fence)"
		}
		if some[0].Deferred {
			from, where = p.table.Held, " AND t.state <> 'error' AND "+backend.Undecided+" AND "+backend.AsRead("g.read_at")
		} else if some[0].Token != "" {
			where = " AND t.claim_token = " + with.add(some[0].Token, "text")
		}
		if backend.BySinks(&some[0]) {
			where = " AND t.sinks = g.sinks" + where
		}
		queries = append(queries, p.copies(with, from, claim, where, some))
	}
	return queries
}

// copies returns the statement that writes the DeadLetters of settlements. The argument `from` is the table of the settlements' rows. The
// argument `claim` is appended to the CTE `given`: it is a join with the CTE `held`, or empty. Rows that don't meet the condition `where`
// get no dead letter. The statement locks the rows that it copies. LIMIT makes the planner find each row by its key.
func (p *Postgres) copies(with *statement, from, claim, where string, settlements []storage.Settlement) backend.Query {
	c := &given{args: &with.args}
	c.rows(settlements)
	add(c, "sinks", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Sinks }))
	add(c, "holds", "smallint", backend.Column(settlements, backend.HoldsOf))
	add(c, "read_at", "timestamptz", backend.Column(settlements, readAt))
	add(c, "copy_id", "uuid", backend.Column(settlements, func(s *storage.Settlement) string { return s.DeadLetter.MessageID }))
	add(c, "copy_topic", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.DeadLetter.Topic }))
	add(c, "copy_headers", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.DeadLetter.Headers }))
	add(c, "copy_sinks", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.DeadLetter.Sinks }))
	with.parts = append(with.parts, "given AS MATERIALIZED ("+c.from()+claim+")",
		"found AS MATERIALIZED (SELECT t.*, g.copy_id, g.copy_topic, NULLIF(g.copy_headers, '')::json AS copy_headers, g.copy_sinks FROM given AS g CROSS JOIN LATERAL ("+
			"SELECT t.id, t.message_key, t.payload, t.payload_text, t.priority, "+backend.CopiedExpiry("clock_timestamp()")+" AS expires_at FROM "+from+" AS t"+
			"\n    WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id"+where+" LIMIT 1 FOR UPDATE) AS t)")
	return backend.Query{SQL: "WITH " + strings.Join(with.parts, ",\n") +
		"\nINSERT INTO " + p.table.Pending + " (" + backend.CopyInto + ")" +
		"\nSELECT copy_id, copy_topic, message_key, payload, payload_text, copy_headers, priority, expires_at, copy_sinks FROM found ORDER BY id", Args: with.args}
}

// settleDone adds the CTEs for a batch in which all rows are pending rows that are done. It divides the ids into lists, and
// the server reads all rows from the first to the last id of a list. Rows of a lane that are done together are mostly
// neighbors, so reading the rows of a list costs a third as much as looking up each row. A condition with a list of ids (=
// ANY) would cost the same. But the planner expects ten lookups for such a condition, and without good statistics would
// scan the whole table.
//
// The server deletes a row only if the row has the settled message. One argument has all message ids as bytes, 16 for
// each, in the order of the lists. The position of a row's id in the lists determines the 16 bytes that the server
// compares with the row's message id. Reading an array of message ids would cost the server ten times as much.
//
// When claiming by rows, the statement doesn't lock the rows first, because locking costs as much as deleting. If another
// transaction has changed a row since the statement began, the statement leaves the row unchanged. A row that was found
// but not deleted belongs to another claim, and counts as fenced. The condition lane + 0 = lane is always true, and makes
// the planner expect few rows in the CTE `given`.
//
// If done rows are kept, the rows in the done table get their outcomes from a table g. If all outcomes are the same, g is
// a single row of values, because a join costs more than the move itself. Otherwise the deleted rows are joined with g by
// id. If two rows have the same id, the join is by id and message, which costs the server twice as much.
func (p *Postgres) settleDone(with *statement, relay string, keep bool, settlements []storage.Settlement) {
	claim, where, columns, among := "", "JOIN held USING (lane, fence)", "h.ctid AS place", ""
	if byRows := settlements[0].Token != ""; byRows {
		claim = with.add(settlements[0].Token, "text")
		where, columns, among = "WHERE lane + 0 = lane", "h.ctid AS place, h.claim_token", " AND t.claim_token = "+claim
	}
	lists := listsOf(settlements)
	with.parts = append(with.parts, "given AS MATERIALIZED (SELECT lane, ids::bigint[] AS ids, before FROM unnest("+
		with.add(dialect.PostgresArray(backend.Column(lists, func(l *idList) int { return l.Lane })), "smallint[]")+", "+
		with.add(dialect.PostgresArray(backend.Column(lists, func(l *idList) int64 { return l.Fence })), "bigint[]")+", "+
		with.add(dialect.PostgresArray(backend.Column(lists, func(l *idList) string { return dialect.PostgresArray(l.ids) })), "text[]")+", "+
		with.add(dialect.PostgresArray(backend.Column(lists, func(l *idList) int { return l.before })), "integer[]")+
		") AS l (lane, fence, ids, before) "+where+")")
	messages := make([]byte, 0, 16*len(settlements))
	for i := range settlements {
		id := settlements[i].MessageID
		for _, part := range [...]string{id[:8], id[9:13], id[14:18], id[19:23], id[24:]} {
			messages, _ = hex.AppendDecode(messages, []byte(part))
		}
	}
	walk := columns + " FROM " + p.table.Pending + " AS h" +
		"\n    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)]" +
		"\n        AND uuid_send(h.message_id) = substring(" + with.add(messages, "bytea") +
		" FROM 16 * (g.before + array_position(g.ids, h.id)) - 15 FOR 16) OFFSET 0) AS x"
	places := "SELECT x.place FROM given AS g CROSS JOIN LATERAL (SELECT " + walk
	if claim != "" {
		with.parts = append(with.parts, "found AS MATERIALIZED (SELECT x.* FROM given AS g CROSS JOIN LATERAL (SELECT "+walk+")")
		places, with.facts = "SELECT place FROM found WHERE claim_token = "+claim, "'fenced', (SELECT count(*) FROM found) - (SELECT count(*) FROM hot), 0"
	}
	returned := "t.id"
	if keep {
		returned = backend.Of("t", backend.Kept) + ", t.available_at, t.last_error"
	}
	with.parts = append(with.parts, "hot AS (DELETE FROM "+p.table.Pending+" AS t WHERE t.ctid = ANY (ARRAY("+
		"\n    "+places+"))"+among+"\n    RETURNING "+returned+")")
	with.changes = []string{"hot"}
	if !keep {
		return
	}
	done := "done AS (INSERT INTO " + p.table.Done + " (" + backend.Kept + ", " + backend.Changing + ", finished_at, receipt, relay)" +
		"\n    SELECT " + backend.Of("t", backend.Kept) + ", g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error)," +
		" now(), NULLIF(g.receipt, ''), " + with.add(relay, "text") +
		"\n    FROM hot AS t "
	c := &given{args: &with.args}
	add(c, "attempts", "integer", backend.Column(settlements, func(s *storage.Settlement) int64 { return int64(s.Attempts) }))
	add(c, "crashes", "integer", backend.Column(settlements, func(s *storage.Settlement) int64 { return int64(s.Crashes) }))
	add(c, "error", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Error }))
	add(c, "receipt", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Receipt }))
	if len(c.arrays) == 0 {
		with.parts = append(with.parts, done+"CROSS JOIN (SELECT "+strings.Join(c.selected, ", ")+") AS g)")
		return
	}
	ids := backend.Column(settlements, func(s *storage.Settlement) int64 { return s.ID })
	c.array("id", with.add(dialect.PostgresArray(ids), "bigint[]"))
	using := "id"
	if slices.Sort(ids); len(slices.Compact(ids)) < len(settlements) { // rows of different lanes or messages have the same id
		c.array("message_id", with.add(messageIDs(settlements), "uuid[]"))
		using = "id, message_id"
	}
	with.parts = append(with.parts, done+"JOIN ("+c.from()+") AS g USING ("+using+"))")
}

// settleEach adds the CTEs for all other batches, one for each kind of change. The statement finds each
// row by its lane, id and message, and held rows also by their sinks. It then changes a row t by its
// physical place, t.ctid = g.place. It doesn't join by keys, because a planner that expects a small table would scan the whole table.
//
// When claiming by rows, the statement locks the rows first, so that their tokens don't change. If another
// transaction has changed a row since the statement began, the statement doesn't change the row, and the
// row counts as fenced if its new token differs from the settlement's token. The CTE `claimed` has conditions on lane and id that are
// always true, and make the planner expect few rows.
func (p *Postgres) settleEach(with *statement, relay string, keep bool, settlements []storage.Settlement, groups backend.Groups) {
	var done []string
	byRows := settlements[0].Token != ""
	c := &given{args: &with.args}
	c.rows(settlements)
	if byRows {
		add(c, "token", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Token }))
	}
	c.outcomes(settlements)
	theHotRow := theRow + " LIMIT 1"
	if backend.NamesSinks(&settlements[0]) {
		theHotRow = theRowOfSinks
	}
	if len(groups.HeldDone)+len(groups.HeldHeld) > 0 || theHotRow == theRowOfSinks {
		add(c, "sinks", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Sinks }))
	}

	if len(groups.HeldHeld) > 0 {
		add(c, "read_at", "timestamptz", backend.Column(settlements, readAt))
	}

	if len(groups.HotHeld)+len(groups.HeldHeld)+len(groups.Freed) > 0 { // done rows have no log
		add(c, "attempt_log", "text", backend.Column(settlements, backend.AttemptLog))
	}

	hot, held := p.table.Pending, p.table.Held
	inHot := "(SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM " + hot + theHotRow + ") AS x)"
	inHeld := "(SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM " + held + theRowOfSinks + ") AS x)"
	if byRows {
		with.parts = append(with.parts, "given AS MATERIALIZED ("+c.from()+")",
			"found AS MATERIALIZED (SELECT g.*, x.* FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token FROM "+hot+theRow+" LIMIT 1 FOR UPDATE) AS x)",
			"claimed AS MATERIALIZED (SELECT * FROM found WHERE claim_token = token AND found_lane = lane AND found_id = id)")
		inHot = "claimed"
		with.facts = "'fenced', (SELECT count(*) FROM found WHERE claim_token IS DISTINCT FROM token), 0"
	} else {
		with.parts = append(with.parts, "given AS MATERIALIZED ("+c.from()+" JOIN held USING (lane, fence))")
	}

	changed := backend.Of("t", backend.Kept) + ", g.attempts, g.crashes, " + newAvailable + " AS available_at, " + newError + " AS last_error, g.state, g.receipt, g.holds"
	if len(groups.HotHeld) > 0 {
		changed += ", " + newLog + " AS attempt_log"
	}
	if len(groups.HotDone)+len(groups.HotHeld) > 0 {
		returned := "t.id"
		if keep || len(groups.HotHeld) > 0 {
			returned = changed
		}
		with.changes, with.parts = append(with.changes, "hot"), append(with.parts, "hot AS (DELETE FROM "+hot+" AS t USING "+inHot+" AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'"+
			"\n    RETURNING "+returned+")")
	}
	if len(groups.HotDone) > 0 {
		done = append(done, "SELECT * FROM hot WHERE state = 'done'")
	}
	if len(groups.HeldDone) > 0 {
		returned := "t.id"
		if keep {
			returned = changed
		}
		with.changes, with.parts = append(with.changes, "back"), append(with.parts, "back AS (DELETE FROM "+held+" AS t USING "+inHeld+" AS g WHERE t.ctid = g.place AND g.held AND g.state = 'done' AND t.state <> 'error'"+
			"\n    RETURNING "+returned+")")
		done = append(done, "SELECT * FROM back")
	}
	if keep && len(done) > 0 {
		with.parts = append(with.parts, p.done(strings.Join(done, " UNION ALL "), with.add(relay, "text")))
	}
	if len(groups.HotHeld) > 0 {
		with.parts = append(with.parts, p.moved("hot WHERE state <> 'done'"))
	}
	if len(groups.HeldHeld) > 0 {
		with.changes, with.parts = append(with.changes, "stayed"), append(with.parts, "stayed AS (UPDATE "+held+" AS t SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes,"+
			" available_at = "+newAvailable+", last_error = "+newError+", attempt_log = "+newLog+
			"\n    FROM "+inHeld+" AS g WHERE t.ctid = g.place AND g.held AND g.state <> 'done' AND t.state <> 'error' AND "+backend.UndecidedStays+" AND "+backend.AsRead("g.read_at")+" RETURNING t.id)")
	}
	if len(groups.Freed) > 0 {
		with.changes, with.parts = append(with.changes, "freed"), append(with.parts, "freed AS (UPDATE "+hot+" AS t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL,"+
			" attempts = g.attempts, crashes = g.crashes, last_error = "+newError+", attempt_log = "+newLog+
			"\n    FROM claimed AS g WHERE t.ctid = g.place AND g.state = 'pending' RETURNING t.id)")
	}
}

// done returns the CTE that inserts the selected rows into the done table.
func (p *Postgres) done(selected, relay string) string {
	return "done AS (INSERT INTO " + p.table.Done + " (" + backend.Kept + ", " + backend.Changing + ", finished_at, receipt, relay)" +
		"\n    SELECT " + backend.Kept + ", " + backend.Changing + ", now(), NULLIF(receipt, ''), " + relay + " FROM (" + selected + ") AS d)"
}

// moved returns the CTE that inserts rows into the held table.
func (p *Postgres) moved(from string) string {
	return "moved AS (INSERT INTO " + p.table.Held + " (" + backend.Kept + ", " + backend.ChangingHeld + ", state, holds)" +
		"\n    SELECT " + backend.Kept + ", " + backend.ChangingHeld + ", state, holds FROM " + from + ")"
}

// theRow and theRowOfSinks are conditions under which h is the row of the settlement g. newAvailable, newError and newLog are the new
// values of a row t whose settlement is g.
const (
	theRow        = " AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id"
	theRowOfSinks = theRow + " AND h.sinks = g.sinks LIMIT 1"
	newAvailable  = "CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END"
	newError      = "COALESCE(NULLIF(g.error, ''), t.last_error)"
	newLog        = "COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log)"
)

// given builds a SELECT of the settlements' values. Each column is an array, or a single value if all
// settlements share this value. A single value saves time, because reading an array costs the server as much as changing the rows. In most
// batches all rows are done at their first attempt, and so share their values.
type given struct {
	args                    *args
	arrays, names, selected []string
}

func add[T comparable](c *given, name, as string, values []T) {
	if slices.ContainsFunc(values, func(v T) bool { return v != values[0] }) {
		c.array(name, c.args.add(dialect.PostgresArray(values), as+"[]"))
	} else {
		c.selected = append(c.selected, c.args.add(values[0], as)+" AS "+name)
	}
}

// rows adds the columns that identify the rows: id, lane and message, and the fence if lanes are leased.
func (c *given) rows(settlements []storage.Settlement) {
	c.array("id", c.args.add(dialect.PostgresArray(backend.Column(settlements, func(s *storage.Settlement) int64 { return s.ID })), "bigint[]"))
	c.array("lane", c.args.add(dialect.PostgresArray(backend.Column(settlements, func(s *storage.Settlement) int { return s.Lane })), "smallint[]"))
	c.array("message_id", c.args.add(messageIDs(settlements), "uuid[]"))
	if settlements[0].Token == "" {
		c.array("fence", c.args.add(dialect.PostgresArray(backend.Column(settlements, func(s *storage.Settlement) int64 { return s.Fence })), "bigint[]"))
	}
}

// outcomes adds the columns with the rows' new values, and the column held, which is true for rows of the held table.
func (c *given) outcomes(settlements []storage.Settlement) {
	add(c, "state", "text", backend.Column(settlements, func(s *storage.Settlement) string { return string(s.State) }))
	add(c, "held", "boolean", backend.Column(settlements, func(s *storage.Settlement) bool { return s.Deferred }))
	add(c, "attempts", "integer", backend.Column(settlements, func(s *storage.Settlement) int64 { return int64(s.Attempts) }))
	add(c, "crashes", "integer", backend.Column(settlements, func(s *storage.Settlement) int64 { return int64(s.Crashes) }))
	add(c, "delay", "bigint", backend.Column(settlements, func(s *storage.Settlement) int64 { return s.Delay.Microseconds() }))
	add(c, "error", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Error }))
	add(c, "receipt", "text", backend.Column(settlements, func(s *storage.Settlement) string { return s.Receipt }))
	add(c, "holds", "smallint", backend.Column(settlements, backend.HoldsOf))
}

func readAt(s *storage.Settlement) string { return backend.ReadAt(s).UTC().Format(timestamp) }

func (c *given) array(name, placeholder string) {
	c.arrays, c.names, c.selected = append(c.arrays, placeholder), append(c.names, name), append(c.selected, name)
}

func (c *given) from() string {
	return "SELECT " + strings.Join(c.selected, ", ") + " FROM unnest(" + strings.Join(c.arrays, ", ") + ") AS u (" + strings.Join(c.names, ", ") + ")"
}

// messageIDs returns the message ids as an array literal. UUIDs need no quotes in such a literal.
func messageIDs(settlements []storage.Settlement) string {
	return "{" + strings.Join(backend.Column(settlements, func(s *storage.Settlement) string { return s.MessageID }), ",") + "}"
}

// The server reads all rows between the first and the last id of a list, and compares their
// ids with the list. So a list must be short and have no wide gaps. Successive rows of a lane
// have ids that differ by about 64.
const (
	listLength = 32  // maximum number of ids in a list
	listGap    = 512 // maximum difference between two successive ids of a list
)

// idList has ids of rows that are in one lane and were read under one lease.
type idList struct {
	storage.Lease
	ids    []int64 // ascending, without duplicates
	before int     // the number of ids in the lists before this one
}

// listsOf divides the ids of the settlements, which are ordered by lane and id, into lists.
func listsOf(settlements []storage.Settlement) (lists []idList) {
	ids := backend.Column(settlements, func(s *storage.Settlement) int64 { return s.ID })
	for i := range settlements {
		lease := storage.Lease{Lane: settlements[i].Lane, Fence: settlements[i].Fence}
		if i > 0 {
			last := &lists[len(lists)-1]
			if last.Lease == lease && len(last.ids) < listLength && ids[i] > ids[i-1] && ids[i]-ids[i-1] <= listGap {
				last.ids = ids[last.before : i+1]
				continue
			}
		}
		lists = append(lists, idList{lease, ids[i : i+1], i})
	}
	return lists
}
