package postgres

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
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

// Settle implements [backend.Settling]. In a transaction of its own it is that
// statement alone.
func (p *Postgres) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []relay.Settlement) (backend.Settled, error) {
	query := p.settleLanes
	if settlements[0].Token != "" {
		query = p.settleRows
	}
	if tx != nil {
		return backend.ReadSettled(ctx, tx, query(relay, keep, settlements))
	}
	return backend.ReadSettled(ctx, p.db, query(relay, keep, settlements))
}

// settleLanes locks the lanes. A takeover locks a lane FOR UPDATE, and so doesn't get
// one in which a settle is in flight; a settle that waited for a takeover finds the
// new fence. Renewals change no key and pass.
func (p *Postgres) settleLanes(relay string, keep bool, settlements []relay.Settlement) backend.Query {
	s := &settling{Postgres: p, relay: relay, keep: keep, settlements: settlements, moves: backend.MovesOf(settlements)}
	leases := backend.LeasesOf(settlements)
	s.with("held", "SELECT l.lane, l.fence FROM "+p.table.Lanes()+" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest("+
		s.add(intArray(leases, laneOf), "smallint[]")+", "+s.add(intArray(leases, fenceOf), "bigint[]")+") AS u (lane, fence)) AS s"+
		" ON l.lane = s.lane AND l.fence = s.fence AND l.owner = "+s.text(relay)+" ORDER BY l.lane FOR KEY SHARE OF l")
	if s.allDone() {
		s.with("given", "SELECT lane, ids::bigint[] AS ids, before FROM "+s.lists()+" JOIN held USING (lane, fence)")
		s.removeAll("SELECT x.place "+s.walk("h.ctid AS place"), "")
	} else {
		fences := s.add(intArray(settlements, func(s *relayed) int64 { return s.Fence }), "bigint[]")
		s.with("given", s.shown("fence", fences)+" JOIN held USING (lane, fence)")
		s.move()
	}
	return s.statement("UNION ALL SELECT 'lane', lane, fence FROM held")
}

// settleRows looks at the claim's token in the place of the lease.
func (p *Postgres) settleRows(relay string, keep bool, settlements []relay.Settlement) backend.Query {
	s := &settling{Postgres: p, relay: relay, keep: keep, settlements: settlements, moves: backend.MovesOf(settlements), claimed: true}
	fenced := "(SELECT count(*) FROM found WHERE claim_token IS DISTINCT FROM token)"
	if s.allDone() {
		// Rows that are all done aren't locked first, which would cost as much as to
		// delete them: one that another transaction has changed since the statement
		// began stays as it is. One that was found and not deleted has another claim,
		// or had. What is always true of given tells the planner that they are few.
		token := s.text(settlements[0].Token)
		s.with("given", "SELECT lane, ids::bigint[] AS ids, before FROM "+s.lists()+" WHERE lane + 0 = lane")
		s.with("found", "SELECT x.* "+s.walk("h.ctid AS place, h.claim_token"))
		s.removeAll("SELECT place FROM found WHERE claim_token = "+token, " AND t.claim_token = "+token)
		fenced = "(SELECT count(*) FROM found) - (SELECT count(*) FROM hot)"
	} else {
		// Locked, so that their tokens are known; one that another transaction has
		// changed since the statement began is counted as it is then, and not changed.
		// The conditions of claimed that are always true tell the planner that there
		// are few.
		s.with("given", s.shown("token", ""))
		s.with("found", "SELECT g.*, x.* "+s.look(p.table.Hot(), "h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token", " FOR UPDATE"))
		s.with("claimed", "SELECT * FROM found WHERE claim_token = token AND found_lane = lane AND found_id = id")
		s.move()
	}
	return s.statement("UNION ALL SELECT 'fenced', " + fenced + ", 0")
}

// settling is a settle's statement in the making.
type settling struct {
	*Postgres
	args
	relay       string
	keep        bool
	claimed     bool // by rows
	settlements []relay.Settlement
	moves       backend.Moves
	ctes        []string
	counts      []string // of changed rows
}

type relayed = relay.Settlement

func laneOf(l *relay.Lease) int64  { return int64(l.Lane) }
func fenceOf(l *relay.Lease) int64 { return l.Fence }

// with adds what is looked up.
func (s *settling) with(name, query string) {
	s.ctes = append(s.ctes, name+" AS MATERIALIZED ("+query+")")
}

// change adds what changes rows, and counts them.
func (s *settling) change(name, statement string) {
	s.ctes = append(s.ctes, name+" AS ("+statement+")")
	s.counts = append(s.counts, "(SELECT count(*) FROM "+name+")")
}

func (s *settling) statement(more string) backend.Query {
	return s.query(
		"WITH "+strings.Join(s.ctes, ",\n"),
		"SELECT 'changed', "+strings.Join(s.counts, " + ")+", 0::bigint",
		"UNION ALL SELECT 'xid', "+s.sql.Text("xid")+", 0",
		more,
		"WHERE "+s.planNow(&s.args))
}

// allDone says that there is nothing but hot rows that are done: as in most batches.
func (s *settling) allDone() bool { return s.moves == backend.Moves{HotDone: true} }

// What a settlement g changes in a row t.
const (
	newError     = "COALESCE(NULLIF(g.error, ''), t.last_error)"
	newAvailable = "CASE WHEN g.state = 'retry' THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END"
)

// walk finds the hot rows list by list. The rows of a lane that are done together
// mostly lie together, so that a walk from the first to the last of a list finds
// them for a third of what it takes to look up each by itself. To look up a list of
// ids would cost the same; but the planner takes that for ten lookups, and reads all
// of the table rather where it has few statistics.
//
// A row is taken if its message's id is the one that stands at its own id's place.
// As bytes these cost the server a tenth of what it takes to read an array of them.
func (s *settling) walk(columns string) string {
	return "FROM given AS g CROSS JOIN LATERAL (SELECT " + columns + " FROM " + s.table.Hot() + " AS h" +
		"\n    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)]" +
		"\n        AND uuid_send(h.message_id) = substring(" + s.add(messageBytes(s.settlements), "bytea") +
		" FROM 16 * (g.before + array_position(g.ids, h.id)) - 15 FOR 16) OFFSET 0) AS x"
}

// removeAll deletes the hot rows at some places, where they are as a condition says,
// and writes them where done rows are kept. For a row that is merely moved, a join with
// what is given for it costs more than the move; so what is given for each row is
// joined afterwards, where it differs.
func (s *settling) removeAll(places, where string) {
	returned := "t.id"
	if s.keep {
		returned = backend.Of("t", backend.Kept) + ", t.available_at, t.last_error"
	}
	s.change("hot", "DELETE FROM "+s.table.Hot()+" AS t WHERE t.ctid = ANY (ARRAY("+
		"\n    "+places+"))"+where+"\n    RETURNING "+returned)
	if s.keep {
		s.ctes = append(s.ctes, "done AS (INSERT INTO "+s.table.Done()+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)"+
			"\n    SELECT "+backend.Of("t", backend.Kept)+", g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error),"+
			" now(), NULLIF(g.receipt, ''), "+s.text(s.relay)+
			"\n    FROM hot AS t "+s.results()+")")
	}
}

// results joins the rows t with what is given for them, as g: by their ids, and where
// that isn't enough by their messages, which cost the server as much again.
func (s *settling) results() string {
	c := &columns{args: &s.args}
	c.ints("attempts", "integer", backend.Column(s.settlements, func(s *relayed) int64 { return int64(s.Attempts) }))
	c.ints("crashes", "integer", backend.Column(s.settlements, func(s *relayed) int64 { return int64(s.Crashes) }))
	c.texts("error", backend.Column(s.settlements, func(s *relayed) string { return s.Error }))
	c.texts("receipt", backend.Column(s.settlements, func(s *relayed) string { return s.Receipt }))
	if c.arrays == "" {
		return "CROSS JOIN (SELECT " + c.selected + ") AS g"
	}
	ids := backend.Column(s.settlements, func(s *relayed) int64 { return s.ID })
	c.array("id", s.ids(ids))
	if slices.Sort(ids); len(slices.Compact(ids)) == len(s.settlements) { // an id may be of two lanes or messages
		return "JOIN (" + c.from() + ") AS g USING (id)"
	}
	c.array("message_id", s.add(messageIDs(s.settlements), "uuid[]"))
	return "JOIN (" + c.from() + ") AS g USING (id, message_id)"
}

// shown selects the settlements, with the fences or tokens that they show.
func (s *settling) shown(claim, fences string) string {
	c := &columns{args: &s.args}
	c.array("id", s.add(intArray(s.settlements, func(s *relayed) int64 { return s.ID }), "bigint[]"))
	c.array("lane", s.add(intArray(s.settlements, func(s *relayed) int64 { return int64(s.Lane) }), "smallint[]"))
	c.array("message_id", s.add(messageIDs(s.settlements), "uuid[]"))
	if fences != "" {
		c.array(claim, fences)
	} else {
		c.texts(claim, backend.Column(s.settlements, func(s *relayed) string { return s.Token }))
	}
	c.texts("state", backend.Column(s.settlements, func(s *relayed) string { return string(s.State) }))
	c.bools("held", backend.Column(s.settlements, func(s *relayed) bool { return s.Held }))
	c.ints("attempts", "integer", backend.Column(s.settlements, func(s *relayed) int64 { return int64(s.Attempts) }))
	c.ints("crashes", "integer", backend.Column(s.settlements, func(s *relayed) int64 { return int64(s.Crashes) }))
	c.ints("delay", "bigint", backend.Column(s.settlements, func(s *relayed) int64 { return s.Delay.Microseconds() }))
	c.texts("error", backend.Column(s.settlements, func(s *relayed) string { return s.Error }))
	c.texts("receipt", backend.Column(s.settlements, func(s *relayed) string { return s.Receipt }))
	return c.from()
}

// look is a FROM of the rows of given, as g, and for each the row of a table with its
// lane, id and message, as x. With the place of that row a statement changes t by
// t.ctid = g.place, one row after the other. Joined by their keys the rows would be
// found by a scan of the table wherever the planner takes it for small.
func (s *settling) look(table, columns, lock string) string {
	return "FROM given AS g CROSS JOIN LATERAL (SELECT " + columns + " FROM " + table + " AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1" + lock + ") AS x"
}

// found are the rows of given in a table, with their places.
func (s *settling) found(table string) string {
	if s.claimed && table == s.table.Hot() {
		return "claimed"
	}
	return "(SELECT g.*, x.place " + s.look(table, "h.ctid AS place", "") + ")"
}

// move changes rows of given in each way that one of them goes.
func (s *settling) move() {
	hot, held := s.table.Hot(), s.table.Held()
	changed := backend.Of("t", backend.Kept) + ", g.attempts, g.crashes, " + newAvailable + " AS available_at, " +
		newError + " AS last_error, g.state, g.receipt"
	var done []string
	if s.moves.HotDone || s.moves.HotHeld {
		returned := "t.id"
		if s.keep || s.moves.HotHeld {
			returned = changed
		}
		s.change("hot", "DELETE FROM "+hot+" AS t USING "+s.found(hot)+" AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'"+
			"\n    RETURNING "+returned)
	}
	if s.moves.HotDone {
		done = append(done, "SELECT * FROM hot WHERE state = 'done'")
	}
	if s.moves.HeldDone {
		returned := "t.id"
		if s.keep {
			returned = changed
		}
		s.change("back", "DELETE FROM "+held+" AS t USING "+s.found(held)+" AS g WHERE t.ctid = g.place AND g.held AND g.state = 'done' AND t.state <> 'error'"+
			"\n    RETURNING "+returned)
		done = append(done, "SELECT * FROM back")
	}
	if s.keep && len(done) > 0 {
		s.ctes = append(s.ctes, "done AS (INSERT INTO "+s.table.Done()+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)"+
			"\n    SELECT "+backend.Kept+", "+backend.Changing+", now(), NULLIF(receipt, ''), "+s.text(s.relay)+
			" FROM ("+strings.Join(done, " UNION ALL ")+") AS d)")
	}
	if s.moves.HotHeld {
		s.ctes = append(s.ctes, "moved AS (INSERT INTO "+held+" ("+backend.Kept+", "+backend.Changing+", state)"+
			"\n    SELECT "+backend.Kept+", "+backend.Changing+", state FROM hot WHERE state <> 'done')")
	}
	if s.moves.HeldHeld {
		s.change("stayed", "UPDATE "+held+" AS t SET state = g.state, attempts = g.attempts, crashes = g.crashes,"+
			" available_at = "+newAvailable+", last_error = "+newError+
			"\n    FROM "+s.found(held)+" AS g WHERE t.ctid = g.place AND g.held AND g.state <> 'done' AND t.state <> 'error' RETURNING t.id")
	}
	if s.moves.Freed {
		s.change("freed", "UPDATE "+hot+" AS t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL,"+
			" attempts = g.attempts, crashes = g.crashes, last_error = "+newError+
			"\n    FROM claimed AS g WHERE t.ctid = g.place AND g.state = 'pending' RETURNING t.id")
	}
}

// columns selects rows that are given as arrays. A column whose values are all the
// same is given once: most batches are all done, at their first attempt, and an array
// costs as much as the row's own change does.
type columns struct {
	args     *args
	arrays   string
	names    string
	selected string
}

func (c *columns) from() string {
	return "SELECT " + c.selected + " FROM unnest(" + c.arrays + ") AS u (" + c.names + ")"
}

func (c *columns) array(name, placeholder string) {
	if c.arrays != "" {
		c.arrays, c.names = c.arrays+", ", c.names+", "
	}
	c.arrays, c.names = c.arrays+placeholder, c.names+name
	c.sel(name)
}

func (c *columns) sel(expression string) {
	if c.selected != "" {
		c.selected += ", "
	}
	c.selected += expression
}

func (c *columns) ints(name, as string, values []int64) {
	if backend.AllEqual(values) {
		c.sel(c.args.add(values[0], as) + " AS " + name)
	} else {
		c.array(name, c.args.add(idArray(values), as+"[]"))
	}
}

func (c *columns) bools(name string, values []bool) {
	if backend.AllEqual(values) {
		c.sel(c.args.add(values[0], "boolean") + " AS " + name)
	} else {
		c.array(name, c.args.add(boolArray(values, func(value *bool) bool { return *value }), "boolean[]"))
	}
}

func (c *columns) texts(name string, values []string) {
	if backend.AllEqual(values) {
		c.sel(c.args.text(values[0]) + " AS " + name)
	} else {
		c.array(name, c.args.texts(values))
	}
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
	relay.Lease
	ids    []int64 // in their order, each once
	before int     // how many are in the lists before it
}

// listsOf has the settlements, which are in the order of lanes and ids, in lists.
func listsOf(settlements []relay.Settlement) (lists []idList) {
	for before := 0; before < len(settlements); {
		first, n := &settlements[before], together(settlements[before:])
		ids := backend.Column(settlements[before:before+n], func(s *relayed) int64 { return s.ID })
		lists, before = append(lists, idList{relay.Lease{Lane: first.Lane, Fence: first.Fence}, ids, before}), before+n
	}
	return lists
}

// together is how many of the first settlements make one list.
func together(settlements []relay.Settlement) (n int) {
	for n = 1; n < min(len(settlements), listLength); n++ {
		before, s := &settlements[n-1], &settlements[n]
		if s.Lane != before.Lane || s.Fence != before.Fence || s.ID <= before.ID || s.ID-before.ID > listGap {
			break
		}
	}
	return n
}

// lists are a FROM of lists (lane, fence, ids, before), ids being the text of an array.
func (s *settling) lists() string {
	lists := listsOf(s.settlements)
	return "unnest(" + s.add(intArray(lists, func(l *idList) int64 { return int64(l.Lane) }), "smallint[]") +
		", " + s.add(intArray(lists, func(l *idList) int64 { return l.Fence }), "bigint[]") +
		", " + s.add(textArray(lists, func(l *idList) string { return idArray(l.ids) }), "text[]") +
		", " + s.add(intArray(lists, func(l *idList) int64 { return int64(l.before) }), "integer[]") + ") AS l (lane, fence, ids, before)"
}

// messageBytes are the messages' ids, of 16 bytes each, one after the other.
func messageBytes(settlements []relay.Settlement) []byte {
	const digits = "\x00\x02\x04\x06\x09\x0b\x0e\x10\x13\x15\x18\x1a\x1c\x1e\x20\x22" // the first of each two
	bytes := make([]byte, 0, len(digits)*len(settlements))
	for i := range settlements {
		id := settlements[i].MessageID
		for _, at := range []byte(digits) {
			bytes = append(bytes, hexDigit(id[at])<<4|hexDigit(id[at+1]))
		}
	}
	return bytes
}

func hexDigit(c byte) byte { return c&0xf + 9*(c>>6) }

// messageIDs is the text of an array. The ids need no quotes.
func messageIDs(settlements []relay.Settlement) string {
	return array(settlements, func(text []byte, s *relayed) []byte { return append(text, s.MessageID...) })
}
