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

// A settle is one statement, WITH one common table expression after the other:
//
//	held    the leases that hold, locked against a takeover (by lanes)
//	given   what is to be settled, of lanes that are held; as lists of ids, or row by row
//	found   the claimed rows of given, with their tokens (by rows)
//	hot     rows that leave the hot table, deleted
//	back    rows that leave the held table as they are done, deleted
//	done    those of both that are done, inserted where done rows are kept
//	moved   hot rows that wait for another time, inserted among the held ones
//	stayed  held rows that stay there, changed
//	freed   claimed rows that are given back, changed
//
// Its answer counts what was changed.

// statement is a settle that is being built.
type statement struct {
	args
	parts   []string // its expressions
	changes []string // the names of those whose rows count as changed
	facts   string   // what it tells beside these
}

// Settle implements [backend.Backend]. In a transaction of its own it is that
// statement alone, but for dead letters, which are written before it. Most batches have nothing
// but hot rows that are done.
func (p *Postgres) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (settled backend.Settled, err error) {
	groups := backend.GroupsOf(settlements)
	plain := len(groups.HotDone) == len(settlements) && !backend.NamesSinks(&settlements[0])
	if plain {
		// Nothing is parked, and so there is no dead letter.
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

// leasesThatHold begins a statement with the leases, which it locks. A takeover locks a lane FOR
// UPDATE, and so doesn't get one in which a settle is in flight; a settle that waited for a
// takeover finds the new fence. Renewals change no key and pass.
func (p *Postgres) leasesThatHold(with *statement, relay string, settlements []storage.Settlement) {
	leases := backend.LeasesOf(settlements)
	with.parts = append(with.parts, "held AS MATERIALIZED (SELECT l.lane, l.fence FROM "+p.table.Lanes+" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest("+
		with.add(dialect.PostgresArray(backend.Column(leases, func(l *storage.Lease) int { return l.Lane })), "smallint[]")+", "+
		with.add(dialect.PostgresArray(backend.Column(leases, func(l *storage.Lease) int64 { return l.Fence })), "bigint[]")+") AS u (lane, fence)) AS s"+
		" ON l.lane = s.lane AND l.fence = s.fence AND l.owner = "+with.add(relay, "text")+" ORDER BY l.lane FOR KEY SHARE OF l)")
}

// run carries the statement out, and reads what it has changed.
func (p *Postgres) run(ctx context.Context, q backend.Querier, with *statement) (backend.Settled, error) {
	query := "WITH " + strings.Join(with.parts, ",\n") +
		"\nSELECT 'changed', (SELECT count(*) FROM " + strings.Join(with.changes, ") + (SELECT count(*) FROM ") + "), 0::bigint" +
		"\nUNION ALL SELECT 'xid', " + p.sql.Text("xid") + ", 0" +
		"\nUNION ALL SELECT " + with.facts +
		"\nWHERE " + p.planNow(&with.args)
	return backend.ReadSettled(ctx, q, backend.Query{SQL: query, Args: with.args})
}

// SettleParts implements [backend.Backend]. It is one statement, too, with these expressions
// beside held and given; what they return has the sinks that the settlement is for:
//
//	hot     rows of the hot table, changed
//	back    rows of the held table, changed
//	parted  rows of both, with what became of them
//	done    those that are done, inserted where done rows are kept
//	moved   those that wait or are parked, inserted among the held ones
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
	with.parts = append(with.parts, "given AS MATERIALIZED ("+c.from()+" JOIN held USING (lane, fence))")
	var parted []string
	for _, parts := range backend.PartsOf(settlements, keep) {
		name, table, where := "hot", p.table.Pending, "NOT g.held"
		if parts.Deferred {
			name, table, where = "back", p.table.Held, "g.held AND t.state <> 'error' AND "+backend.Undecided
		}
		with.changes, parted = append(with.changes, name), append(parted, "SELECT * FROM "+name)
		with.parts = append(with.parts, name+" AS (UPDATE "+table+" AS t SET sinks = g.rest"+
			"\n    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM "+table+theRowOfSinks+") AS x) AS g"+
			"\n    WHERE t.ctid = g.place AND "+where+
			"\n    RETURNING "+backend.KeptFor("g.part AS sinks")+", g.attempts, g.crashes, "+newAvailable+" AS available_at, "+newError+" AS last_error, g.state, g.receipt, g.holds)")
	}
	with.parts = append(with.parts, "parted AS ("+strings.Join(parted, " UNION ALL ")+")")
	if keep {
		with.parts = append(with.parts, p.done("SELECT * FROM parted WHERE state = 'done'", with.add(relay, "text")))
	}
	with.parts = append(with.parts, p.moved("parted WHERE state NOT IN ('done', 'discarded')"))
	return p.run(ctx, tx, with)
}

// deadLetters are written before their rows move: of the rows that the settle is about to change,
// which are locked. Who settles the same rows at the same time waits, and then finds none.
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

// copies writes the messages that settlements have as their DeadLetter: of those rows of a table
// that meet a condition, which are locked. Each is found by its key, as the planner is told by
// LIMIT; claim is what given is joined with.
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

// settleDone finds the hot rows list by list. The rows of a lane that are done together
// mostly lie together, so that a walk from the first to the last of a list finds
// them for a third of what it takes to look up each by itself. To look up a list of
// ids would cost the same; but the planner takes that for ten lookups, and reads all
// of the table rather where it has few statistics.
//
// A row is deleted only if it has the message that was settled. The ids of all messages are given as one string of
// bytes, 16 for each, in the order of the lists: the place of a row's id among the ids tells which 16 are its own. As
// bytes they cost the server a tenth of what it takes to read an array of ids.
//
// By rows, the rows aren't locked first, which would cost as much as to delete them. A row that another transaction has
// changed since the statement began stays as it is. A row that was found and not deleted is another's claim by now, and
// counts as fenced. The condition on given that is always true (lane + 0 = lane) tells the planner that there are few.
//
// If done rows are kept, the deleted rows get their outcomes from g. If all outcomes are the same, g is a single row of
// values, as a join costs more than the move itself. Else g is joined by the rows' ids; and by their messages, too, if an
// id occurs twice, which costs the server as much again.
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
	if slices.Sort(ids); len(slices.Compact(ids)) < len(settlements) { // an id may be of two lanes or messages
		c.array("message_id", with.add(messageIDs(settlements), "uuid[]"))
		using = "id, message_id"
	}
	with.parts = append(with.parts, done+"JOIN ("+c.from()+") AS g USING ("+using+"))")
}

// settleEach is for all other batches. It finds each row by its lane, id and message, and
// changes the rows t by their places, t.ctid = g.place, one row after the other: joined by
// their keys they would be found by a scan of the table wherever the planner takes it for
// small. It has an expression for each way that one of the rows goes.
//
// By rows, they are locked, so that their tokens are known; one that another transaction
// has changed since the statement began is counted as it is then, and not changed. The
// conditions of claimed that are always true tell the planner that there are few.
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
			" available_at = "+newAvailable+", last_error = "+newError+
			"\n    FROM "+inHeld+" AS g WHERE t.ctid = g.place AND g.held AND g.state <> 'done' AND t.state <> 'error' AND "+backend.UndecidedStays+" AND "+backend.AsRead("g.read_at")+" RETURNING t.id)")
	}
	if len(groups.Freed) > 0 {
		with.changes, with.parts = append(with.changes, "freed"), append(with.parts, "freed AS (UPDATE "+hot+" AS t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL,"+
			" attempts = g.attempts, crashes = g.crashes, last_error = "+newError+
			"\n    FROM claimed AS g WHERE t.ctid = g.place AND g.state = 'pending' RETURNING t.id)")
	}
}

// done inserts what is selected where done rows are kept.
func (p *Postgres) done(selected, relay string) string {
	return "done AS (INSERT INTO " + p.table.Done + " (" + backend.Kept + ", " + backend.Changing + ", finished_at, receipt, relay)" +
		"\n    SELECT " + backend.Kept + ", " + backend.Changing + ", now(), NULLIF(receipt, ''), " + relay + " FROM (" + selected + ") AS d)"
}

// moved inserts rows among the held ones.
func (p *Postgres) moved(from string) string {
	return "moved AS (INSERT INTO " + p.table.Held + " (" + backend.Kept + ", " + backend.Changing + ", state, holds)" +
		"\n    SELECT " + backend.Kept + ", " + backend.Changing + ", state, holds FROM " + from + ")"
}

// Which row h a settlement g is about, and what it changes in a row t.
const (
	theRow        = " AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id"
	theRowOfSinks = theRow + " AND h.sinks = g.sinks LIMIT 1"
	newAvailable  = "CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END"
	newError      = "COALESCE(NULLIF(g.error, ''), t.last_error)"
)

// given selects rows that are given as arrays. A column whose values are all the
// same is given once: most batches are all done, at their first attempt, and an array
// costs as much as the row's own change does.
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

// rows adds the columns that say which rows are meant, and under which lease, unless they are claimed by a token.
func (c *given) rows(settlements []storage.Settlement) {
	c.array("id", c.args.add(dialect.PostgresArray(backend.Column(settlements, func(s *storage.Settlement) int64 { return s.ID })), "bigint[]"))
	c.array("lane", c.args.add(dialect.PostgresArray(backend.Column(settlements, func(s *storage.Settlement) int { return s.Lane })), "smallint[]"))
	c.array("message_id", c.args.add(messageIDs(settlements), "uuid[]"))
	if settlements[0].Token == "" {
		c.array("fence", c.args.add(dialect.PostgresArray(backend.Column(settlements, func(s *storage.Settlement) int64 { return s.Fence })), "bigint[]"))
	}
}

// outcomes adds the columns that say in which table the rows are (held), and what becomes of them.
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

// messageIDs is the text of an array. The ids need no quotes.
func messageIDs(settlements []storage.Settlement) string {
	return "{" + strings.Join(backend.Column(settlements, func(s *storage.Settlement) string { return s.MessageID }), ",") + "}"
}

// The rows that lie between the first and the last row of a list are looked at,
// and compared with each id of it: a list is short, and what lies far from the
// others has one of its own. A lane has about each 64th id.
const (
	listLength = 32
	listGap    = 512 // ids
)

// idList are rows of one lane that were read under one lease, by their ids.
type idList struct {
	storage.Lease
	ids    []int64 // in their order, each once
	before int     // how many are in the lists before it
}

// listsOf has the settlements, which are in the order of lanes and ids, in lists.
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
