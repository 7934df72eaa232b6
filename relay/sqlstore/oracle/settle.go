package oracle

import (
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// settleLanes locks one lock of each lane, the one of its session, which a
// takeover doesn't get then; a settle that waited for a takeover finds the new
// fence, as the statement that looks for it begins later. Renewals lock something
// else and pass.
func (d *Oracle) settleLanes(name string, keep bool, settlements []relay.Settlement) (lock, facts backend.Query, writes []write) {
	type shown struct {
		lane  int
		fence int64
	}
	leases := make(map[shown]bool)
	items := [][]int64{}
	for _, settlement := range settlements {
		lease := shown{settlement.Lane, settlement.Fence}
		if !leases[lease] {
			leases[lease] = true
			items = append(items, []int64{int64(lease.lane), lease.fence})
		}
	}
	const columns = "lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]'"
	var l, f args
	m := moving{table: d.table, relay: name, keep: keep, claim: "claim NUMBER PATH '$[2]'", byLanes: true}
	lock = l.lockAll("SELECT lock_id FROM " + locks(d.table) + " WHERE lock_id IN (\n        SELECT " + laneSlots +
		" * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), " + laneSlots + ") FROM " + l.given("g", items, columns) + ")\n    ORDER BY lock_id FOR UPDATE")
	facts = f.query("SELECT 'lane', l.lane, l.fence FROM " + f.given("g", items, columns) + " JOIN " + d.table.Lanes + " l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = " + f.add(name))
	return lock, facts, m.writes(settlements)
}

// settleRows locks the rows first, so that their tokens stay what it finds.
func (d *Oracle) settleRows(name string, keep bool, settlements []relay.Settlement) (lock, facts backend.Query, writes []write) {
	const columns = "id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]'"
	var l, f args
	m := moving{table: d.table, relay: name, keep: keep, claim: "claim VARCHAR2(255) PATH '$[2]'", token: " AND t.claim_token = g.claim"}
	lock = l.lockAll("SELECT t.id FROM " + d.table.Hot + " t WHERE t.id IN " + l.ids(backend.Column(settlements, func(s *relay.Settlement) int64 { return s.ID })) +
		"\n    ORDER BY t.id FOR UPDATE")
	facts = f.query("SELECT 'fenced', COUNT(*), 0 FROM "+f.given("g", items(settlements), columns)+" JOIN "+d.table.Hot+" t ON "+row,
		"WHERE t.claim_token IS NULL OR t.claim_token <> g.claim")
	return lock, facts, m.writes(settlements)
}

func items(settlements []relay.Settlement) [][]any {
	return backend.Column(settlements, func(s *relay.Settlement) []any {
		claim := any(s.Fence)
		if s.Token != "" {
			claim = s.Token
		}
		return []any{s.ID, s.Lane, claim, s.State, s.Attempts, s.Crashes, s.Delay.Microseconds(), cut(s.Error), cut(s.Receipt), s.MessageID}
	})
}

// moving makes the statements that move the rows that are still the relay's:
// the claim is a join with the lanes, or the token.
type moving struct {
	table   dialect.Table
	relay   string
	keep    bool
	claim   string // how the settlement shows it
	byLanes bool
	token   string // a condition, by rows
}

// row finds the row t that g is about.
const row = "t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id"

// groups are settlements by what becomes of them.
type groups struct{ hotDone, hotHeld, heldDone, heldHeld, freed []relay.Settlement }

func group(settlements []relay.Settlement) (groups groups) {
	for _, s := range settlements {
		group := &groups.hotHeld
		switch {
		case s.State == relay.StatePending:
			group = &groups.freed
		case s.State == relay.StateDone && s.Held:
			group = &groups.heldDone
		case s.State == relay.StateDone:
			group = &groups.hotDone
		case s.Held:
			group = &groups.heldHeld
		}
		*group = append(*group, s)
	}
	return groups
}

// writes has nothing for a group that is empty.
func (m moving) writes(settlements []relay.Settlement) (writes []write) {
	groups := group(settlements)
	writes = append(writes, m.finish(m.table.Hot, m.token, groups.hotDone)...)
	writes = append(writes, m.finish(m.table.Held, " AND t.state <> 'error'", groups.heldDone)...)
	writes = append(writes, m.hold(groups.hotHeld)...)
	writes = append(writes, m.change(groups.heldHeld)...)
	return append(writes, m.free(groups.freed)...)
}

const (
	available = "CASE WHEN g.state = 'retry' THEN " + now + " + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END"
	fault     = "NVL(g.fault, t.last_error)"
)

// given are the settlements, as g, of rows that may be the relay's.
func (m moving) given(a *args, settlements []relay.Settlement) string {
	given := a.given("g", items(settlements), "\n        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', "+m.claim+
		", state VARCHAR2(10) PATH '$[3]',\n        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]'")
	if m.byLanes {
		given += "\n    JOIN " + m.table.Lanes + " l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = " + a.add(m.relay)
	}
	return given
}

// found joins the settlements with their rows, as t, by the key of each.
func (m moving) found(a *args, from, where string, settlements []relay.Settlement) string {
	return "FROM " + m.given(a, settlements) + "\n    JOIN " + from + " t ON " + row + where
}

const found = "/*+ LEADING(g) USE_NL(t) INDEX(t) */"

func (m moving) finish(from, where string, settlements []relay.Settlement) (writes []write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		var a args
		writes = append(writes, write{Query: a.query(
			"INSERT INTO "+m.table.Done+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)",
			"SELECT "+found+" "+backend.Of("t", backend.Kept)+", g.attempts, g.crashes, t.available_at, "+fault+", "+now+", g.receipt, "+a.add(m.relay),
			m.found(&a, from, where, settlements))})
	}
	return append(writes, m.remove(from, where, settlements))
}

func (m moving) remove(from, where string, settlements []relay.Settlement) write {
	var a args
	return write{counts: true, Query: a.query(
		"DELETE /*+ INDEX(d) */ FROM "+from+" d WHERE (d.id, d.message_id) IN (SELECT "+found+" t.id, t.message_id",
		m.found(&a, from, where, settlements)+")")}
}

func (m moving) hold(settlements []relay.Settlement) []write {
	if len(settlements) == 0 {
		return nil
	}
	var a args
	return []write{
		{Query: a.query(
			"INSERT INTO "+m.table.Held+" ("+backend.Kept+", "+backend.Changing+", state)",
			"SELECT "+found+" "+backend.Of("t", backend.Kept)+", g.attempts, g.crashes, "+available+", "+fault+", g.state",
			m.found(&a, m.table.Hot, m.token, settlements))},
		m.remove(m.table.Hot, m.token, settlements),
	}
}

func (m moving) change(settlements []relay.Settlement) []write {
	if len(settlements) == 0 {
		return nil
	}
	var a args
	return []write{{counts: true, Query: a.query(
		"MERGE INTO "+m.table.Held+" t USING (SELECT g.* FROM "+m.given(&a, settlements)+") g ON ("+row+")",
		"WHEN MATCHED THEN UPDATE SET t.state = g.state, t.attempts = g.attempts, t.crashes = g.crashes,",
		"    t.available_at = "+available+", t.last_error = "+fault,
		"    WHERE t.state <> 'error'")}}
}

func (m moving) free(settlements []relay.Settlement) []write {
	if len(settlements) == 0 {
		return nil
	}
	var a args
	return []write{{counts: true, Query: a.query(
		"MERGE INTO "+m.table.Hot+" t USING (SELECT g.* FROM "+m.given(&a, settlements)+") g ON ("+row+")",
		"WHEN MATCHED THEN UPDATE SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.claim_stamp = NULL,",
		"    t.attempts = g.attempts, t.crashes = g.crashes, t.last_error = "+fault,
		"    WHERE t.claim_token = g.claim")}}
}

func (d *Oracle) purge(retention time.Duration, limit int) backend.Query {
	var a args
	return a.query(
		"DELETE FROM "+d.table.Done+" WHERE (id, message_id) IN (SELECT id, message_id FROM (",
		"    SELECT id, message_id FROM "+d.table.Done+" WHERE finished_at < "+a.in(-retention),
		"    ORDER BY finished_at) WHERE ROWNUM <= "+a.int(limit)+")")
}
