package dialect

import (
	"strconv"
)

// SettleLanes locks the lanes against a takeover, together with other settles,
// and then looks at their fences: by a statement of its own, which sees what was
// committed when the locks had been taken. A renewal changes other rows, and
// waits for no settle.
func (d mysql) SettleLanes(table Table, relay string, keep bool, settlements []Settlement) Settle {
	table = table.Backquoted()
	leases := leasesOf(settlements)
	lanes := mysqlList(column(leases, func(l lease) int { return l.lane }))
	move := mysqlMove{dialect: d, table: table, relay: relay, keep: keep}
	return Settle{
		Begin: []Query{mysqlQuery("SELECT lane FROM " + table.LaneLocks() + " FORCE INDEX (PRIMARY) WHERE lane IN " + lanes + " ORDER BY lane" + d.share())},
		Facts: mysqlQuery("SELECT 'lane', lane, fence FROM "+table.Lanes()+" FORCE INDEX (PRIMARY) WHERE "+mysqlFences(leases)+" AND owner = ?", relay),
		Then:  func(holds func(lane int, fence int64) bool) []Write { return move.writes(held(settlements, holds)) },
	}
}

// SettleRows needs no lease: it changes the rows that still have the token. It
// locks all of them first, and counts those that have another one.
func (d mysql) SettleRows(table Table, relay string, keep bool, settlements []Settlement) Settle {
	table = table.Backquoted()
	move := mysqlMove{dialect: d, table: table, relay: relay, keep: keep, token: settlements[0].Token}
	facts := mysqlQuery("SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM "+table.Hot()+" AS t FORCE INDEX (PRIMARY)"+
		"\nWHERE "+mysqlRows(settlements)+" FOR UPDATE", move.token)
	return Settle{Facts: facts, Writes: move.writes(settlements)}
}

func (d mysql) Purge(table Table, purge Purge) []Write {
	table = table.Backquoted()
	old := mysqlQuery("SELECT id FROM " + table.Done() + " FORCE INDEX (done_finished) WHERE finished_at < " + mysqlIn(-purge.Retention) +
		" ORDER BY finished_at LIMIT " + strconv.Itoa(purge.Limit) + d.skip())
	return d.inTurn(table, Write{Query: old, Counts: true, After: func(ids []int64) []Query {
		return d.deleteByID(table.Done(), "PRIMARY", ids, func(where *mysqlText) { where.add("t.finished_at < " + mysqlIn(-purge.Retention)) })
	}})
}
