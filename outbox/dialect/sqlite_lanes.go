package dialect

import "time"

// A write statement has the database to itself, so that a look at the fence
// within it is enough.

func (sqlite) Acquire(table Table, relay string, count int, ttl time.Duration) Steps {
	return alone(sqliteQuery(`
UPDATE `+table.Lanes()+` SET owner = ?, fence = fence + 1, until = `+sqliteIn+`,
    crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END
WHERE lane IN (SELECT lane FROM `+table.Lanes()+` WHERE owner IS NULL OR until < `+sqliteNow+` ORDER BY random() LIMIT ?)
RETURNING lane, fence, coalesce(marks, ''), crashes, coalesce(journal, ''), 0`,
		relay, sqliteSeconds(ttl), int64(count)))
}

func (sqlite) Renew(table Table, relay, _ string, leases []Lease, ttl time.Duration) Steps {
	return alone(sqliteQuery(`
UPDATE `+table.Lanes()+` AS l
SET until = `+sqliteIn+`, marks = g.marks,
    crashes = CASE WHEN g.calm THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm THEN NULL ELSE l.journal END
`+sqliteLeases+`
RETURNING lane, fence, 0`,
		sqliteSeconds(ttl), sqliteLeaseItems(leases), relay))
}

func (sqlite) Release(table Table, relay, _ string, leases []Lease) Steps {
	return alone(sqliteQuery(`
UPDATE `+table.Lanes()+` AS l
SET owner = NULL, until = NULL, marks = g.marks, journal = NULL, crashes = 0
`+sqliteLeases+`
RETURNING lane, fence, 0`,
		sqliteLeaseItems(leases), relay))
}

func (sqlite) Journal(table Table, relay string, leases []Lease) Steps {
	return alone(sqliteQuery(`
UPDATE `+table.Lanes()+` AS l SET journal = g.journal
`+sqliteLeases+`
RETURNING lane, fence, 0`,
		sqliteLeaseItems(leases), relay))
}

func (sqlite) Journals(table Table) Query {
	return sqliteQuery("SELECT lane, fence, journal FROM " + table.Lanes() + " WHERE journal IS NOT NULL")
}

var sqliteLeases = "FROM (SELECT " + sqliteItem(0) + " AS lane, " + sqliteItem(1) + " AS fence, " +
	sqliteItem(2) + " AS marks, " + sqliteItem(3) + ` AS calm, ` + sqliteItem(4) + ` AS journal FROM json_each(?) AS j) AS g
WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = ?`

func sqliteLeaseItems(leases []Lease) string {
	return sqliteJSON(column(leases, func(l Lease) []any { return []any{l.Lane, l.Fence, l.Marks, l.Calm, l.Journal} }))
}

func (sqlite) Marks(table Table) Query {
	return sqliteQuery("SELECT lane, marks FROM " + table.Lanes() + " WHERE marks IS NOT NULL ORDER BY lane")
}
