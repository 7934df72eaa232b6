package dialect

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Claim names the index that has the order, for with a sort all that is free
// would be locked. With a bound it leaves out payloads that are twice as large as
// the average row may be, so that what it selects is never much more than what is
// claimed; what is claimed of these is selected again.
func (d mysql) Claim(table Table, claim Claim) Steps {
	table = table.Backquoted()
	index, order := mysqlClaimOrder(claim.Pick)
	columns := mysqlHot
	if claim.MaxBytes > 0 {
		columns = mysqlUpTo(2 * claim.MaxBytes / max(1, claim.Limit))
	}
	ask := (&mysqlText{}).add("SELECT " + columns + "\nFROM " + table.Hot() + " AS t FORCE INDEX (" + index + ") WHERE " + d.byRows(table) + "t.claimed_until IS NULL")
	if len(claim.Topics) > 0 {
		ask.add(" AND CAST(t.topic AS BINARY) IN "+mysqlArguments(len(claim.Topics)), mysqlTexts(claim.Topics)...)
	}
	if len(claim.Except) > 0 {
		ask.add(" AND CAST(t.topic AS BINARY) NOT IN "+mysqlArguments(len(claim.Except)), mysqlTexts(claim.Except)...)
	}
	ask.add("\nORDER BY " + order + " LIMIT " + strconv.Itoa(claim.Limit) + d.skip())
	return Steps{Do: d.turn(table), Ask: ask.query(), After: func(ids []int64) []Query {
		return []Query{mysqlQuery("UPDATE "+table.Hot()+" FORCE INDEX (id) SET claimed_by = ?, claim_token = ?, claimed_until = "+mysqlIn(claim.TTL)+
			" WHERE claimed_until IS NULL AND id IN "+mysqlList(ids), claim.Relay, claim.Token)}
	}}
}

// byRows locks the way of claiming, for statements that do nothing unless it is by
// rows: who changes it at the same time either sees what they do, or they see the
// change. The tables of TiDB are claimed no other way.
func (d mysql) byRows(table Table) string {
	if d.flavour == flavourTiDB {
		return ""
	}
	return "(SELECT value FROM " + table.Settings() + " WHERE name = 'claim'" + d.share() + ") = 'rows' AND "
}

// PeekFree implements [ClaimPeeking].
func (mysql) PeekFree(table Table) Query {
	table = table.Backquoted()
	return mysqlQuery("SELECT id FROM " + table.Hot() + " FORCE INDEX (claim_id) WHERE claimed_until IS NULL ORDER BY id LIMIT 1")
}

// PeekEnded implements [ClaimPeeking].
func (mysql) PeekEnded(table Table) Query {
	table = table.Backquoted()
	return mysqlQuery(ended(
		"SELECT id FROM "+table.Hot()+" FORCE INDEX (claim_id) WHERE claimed_until < "+mysqlNow+" ORDER BY claimed_until",
		"SELECT id FROM "+table.Held()+" FORCE INDEX (held_due) WHERE due_at <= "+mysqlNow+" ORDER BY due_at, id"))
}

func mysqlClaimOrder(pick string) (index, order string) {
	switch pick {
	case "newest":
		return "claim_id", "t.id DESC"
	case "priority":
		return "claim_priority", "t.urgency, t.id"
	default:
		return "claim_id", "t.id"
	}
}

// Extend passes over rows that are locked: they are being settled or handled, and
// nobody else gets them meanwhile. So they are still claimed.
func (d mysql) Extend(table Table, token string, ids []int64, ttl time.Duration) Steps {
	table = table.Backquoted()
	claimed := "SELECT id FROM " + table.Hot() + " FORCE INDEX (id) WHERE " + d.byRows(table) + "id IN " + mysqlList(ids) + " AND claim_token = ?"
	return Steps{
		Ask: mysqlQuery(claimed+d.skip(), token),
		After: func(ids []int64) []Query {
			return []Query{mysqlQuery("UPDATE " + table.Hot() + " FORCE INDEX (id) SET claimed_until = " + mysqlIn(ttl) + " WHERE id IN " + mysqlList(ids))}
		},
		Also: mysqlQuery(claimed, token),
	}
}

func (d mysql) FreeEnded(table Table, limit int) []Write {
	table = table.Backquoted()
	const free = "claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = crashes + 1"
	ended := mysqlQuery("SELECT id FROM " + table.Hot() + " FORCE INDEX (claim_id) WHERE " + d.byRows(table) + "claimed_until < " + mysqlNow +
		" ORDER BY claimed_until LIMIT " + strconv.Itoa(limit) + d.skip())
	return d.inTurn(table, Write{Query: ended, Counts: true, After: func(ids []int64) []Query {
		return []Query{mysqlQuery("UPDATE " + table.Hot() + " FORCE INDEX (id) SET " + free +
			" WHERE id IN " + mysqlList(ids) + " AND claimed_until < " + mysqlNow)}
	}})
}

// Return selects the rows' places: an id and a lane in one number.
func (d mysql) Return(table Table, limit int) []Write {
	table = table.Backquoted()
	first := d.byRows(table) + "t.due_at <= " + mysqlNow + " AND " + firstOfID(table, "o.due_at <= "+mysqlNow)
	due := mysqlQuery("SELECT t.id * 64 + t.lane FROM " + table.Held() + " AS t FORCE INDEX (held_due)\nWHERE " + first + " AND " + idIsFree(table) +
		"\nORDER BY t.due_at, t.id LIMIT " + strconv.Itoa(limit) + d.skipT())
	return d.inTurn(table, Write{Query: due, Counts: true, After: func(places []int64) (queries []Query) {
		rows := column(places, func(place int64) Settlement { return Settlement{Lane: int(place % 64), ID: place / 64} })
		slices.SortFunc(rows, func(a, b Settlement) int { return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.ID, b.ID)) })
		for part := range slices.Chunk(rows, mysqlMostGiven) {
			queries = append(queries, d.returnRows(table, first, part)...)
		}
		return queries
	}})
}

// returnRows inserts the rows, and deletes those that came: an id may have others.
func (d mysql) returnRows(table Table, first string, rows []Settlement) []Query {
	lanes, ids := column(rows, func(s Settlement) int { return s.Lane }), column(rows, func(s Settlement) int64 { return s.ID })
	keys := &mysqlGiven{dialect: d, settlements: rows}
	remove := (&mysqlText{}).add("DELETE t FROM ")
	keys.table(remove)
	remove.add(table.Held() + " AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id" +
		"\nSTRAIGHT_JOIN " + table.Hot() + " AS h FORCE INDEX (PRIMARY) ON h.lane = t.lane AND h.id = t.id AND h.message_id = t.message_id")
	return []Query{
		mysqlQuery("INSERT INTO " + table.Hot() + " (" + moving + ")\nSELECT " + prefixed(moving, "t.") +
			" FROM " + table.Held() + " AS t FORCE INDEX (PRIMARY) WHERE " + mysqlAmong("t.", lanes, ids) + " AND " + first + d.lockT()),
		remove.query(),
	}
}

// inTurn has the turn come before the write.
func (d mysql) inTurn(table Table, write Write) (writes []Write) {
	for _, query := range d.turn(table) {
		writes = append(writes, Write{Query: query})
	}
	return append(writes, write)
}
