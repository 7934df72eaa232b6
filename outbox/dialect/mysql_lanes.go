package dialect

import (
	"strconv"
	"time"
)

// Acquire takes the lanes in their order, for a sort would lock all of them. A
// settle that is under way has locked its lanes' rows of lane locks; those lanes
// are passed over or, where that can't be, waited for.
func (d mysql) Acquire(table Table, relay string, count int, ttl time.Duration) Steps {
	table = table.Backquoted()
	const free = "(l.owner IS NULL OR l.until < " + mysqlNow + ")"
	ask := "SELECT l.lane, l.fence + 1, coalesce(l.marks, ''), l.crashes + (l.owner IS NOT NULL), coalesce(l.journal, ''), 0" +
		"\nFROM " + table.Lanes() + " AS l FORCE INDEX (PRIMARY)"
	if d.skipLocked {
		ask += " STRAIGHT_JOIN " + table.LaneLocks() + " AS k FORCE INDEX (PRIMARY) ON k.lane = l.lane"
	}
	ask += "\nWHERE " + free + " ORDER BY l.lane LIMIT " + strconv.Itoa(count) + " FOR UPDATE"
	if d.skipLocked {
		ask += " SKIP LOCKED"
	}
	return Steps{Ask: mysqlQuery(ask), After: func(lanes []int64) (queries []Query) {
		in := " WHERE lane IN " + mysqlList(lanes)
		if !d.skipLocked {
			queries = append(queries, mysqlQuery("SELECT lane FROM "+table.LaneLocks()+" FORCE INDEX (PRIMARY)"+in+" ORDER BY lane FOR UPDATE"))
		}
		return append(queries, mysqlQuery("UPDATE "+table.Lanes()+" FORCE INDEX (PRIMARY) SET fence = fence + 1,"+
			" crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END, owner = ?, `until` = "+mysqlIn(ttl)+in, relay))
	}}
}

func (d mysql) Renew(table Table, relay, epoch string, leases []Lease, ttl time.Duration) Steps {
	return d.change(table, relay, leases, func(set *mysqlText) {
		set.add("`until` = " + mysqlIn(ttl) + ", marks = ")
		d.marks(set, epoch, leases)
		if calm := calmLanes(leases); len(calm) > 0 {
			in := "CASE WHEN lane IN " + mysqlList(calm)
			set.add(", crashes = " + in + " THEN 0 ELSE crashes END, journal = " + in + " THEN NULL ELSE journal END")
		}
	})
}

func (d mysql) Release(table Table, relay, epoch string, leases []Lease) Steps {
	return d.change(table, relay, leases, func(set *mysqlText) {
		set.add("owner = NULL, `until` = NULL, journal = NULL, crashes = 0, marks = ")
		d.marks(set, epoch, leases)
	})
}

// marks are the ones given, if they were made in this epoch.
func (d mysql) marks(set *mysqlText, epoch string, leases []Lease) {
	if epoch != "" {
		set.add("CASE WHEN "+d.server()+" <> ? THEN marks ELSE ", epoch)
		defer set.add(" END")
	}
	mysqlOf(set, leases, "marks", func(l Lease) any { return l.Marks })
}

func (d mysql) Journal(table Table, relay string, leases []Lease) Steps {
	return d.change(table, relay, leases, func(set *mysqlText) {
		set.add("journal = ")
		mysqlOf(set, leases, "journal", func(l Lease) any { return l.Journal })
	})
}

func (mysql) Journals(table Table) Query {
	return mysqlQuery("SELECT lane, fence, journal FROM " + table.Backquoted().Lanes() + " WHERE journal IS NOT NULL")
}

// change locks the lanes whose leases hold, and changes them.
func (mysql) change(table Table, relay string, leases []Lease, set func(*mysqlText)) Steps {
	table = table.Backquoted()
	held := mysqlFences(column(leases, func(l Lease) lease { return lease{l.Lane, l.Fence} }))
	return Steps{
		Ask: mysqlQuery("SELECT lane, fence, 0 FROM "+table.Lanes()+" FORCE INDEX (PRIMARY) WHERE "+held+
			" AND owner = ? ORDER BY lane FOR UPDATE", relay),
		After: func(lanes []int64) []Query {
			update := (&mysqlText{}).add("UPDATE " + table.Lanes() + " FORCE INDEX (PRIMARY) SET ")
			set(update)
			return []Query{update.add(" WHERE lane IN " + mysqlList(lanes)).query()}
		},
	}
}

// lease is a lane and its fence.
type lease struct {
	lane  int
	fence int64
}

// mysqlFences is a condition of lanes. The list of lanes serves the index.
func mysqlFences(leases []lease) string {
	pairs := ""
	for i, l := range leases {
		if i > 0 {
			pairs += ","
		}
		pairs += "(" + strconv.Itoa(l.lane) + "," + strconv.FormatInt(l.fence, 10) + ")"
	}
	return "lane IN " + mysqlList(column(leases, func(l lease) int { return l.lane })) + " AND (lane, fence) IN (" + pairs + ")"
}

// mysqlOf chooses a value by the lane.
func mysqlOf(set *mysqlText, leases []Lease, otherwise string, value func(Lease) any) {
	set.add("CASE lane")
	for _, l := range leases {
		set.add(" WHEN "+strconv.Itoa(l.Lane)+" THEN ?", value(l))
	}
	set.add(" ELSE " + otherwise + " END")
}

func calmLanes(leases []Lease) (lanes []int) {
	for _, l := range leases {
		if l.Calm {
			lanes = append(lanes, l.Lane)
		}
	}
	return lanes
}

func (mysql) Marks(table Table) Query {
	return mysqlQuery("SELECT lane, marks FROM " + table.Backquoted().Lanes() + " WHERE marks IS NOT NULL ORDER BY lane")
}
