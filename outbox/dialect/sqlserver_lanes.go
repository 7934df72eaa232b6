package dialect

import "time"

// Acquire passes over lanes that another changes, or in which a settle is under
// way. A settle holds a shared lock on the lane's entry in the index of fences,
// which a renewal doesn't touch, and which is asked for exclusively here. The
// lanes are put in a random order before any is locked: sorting rows that are
// locked would lock them all.
func (sqlserver) Acquire(table Table, relay string, count int, ttl time.Duration) Steps {
	var a sqlserverArgs
	return alone(a.write(
		"UPDATE TOP ("+a.int(count)+") l",
		"SET owner = "+a.add(relay)+", fence = l.fence + 1, until = "+a.in(ttl)+",",
		"    crashes = CASE WHEN l.owner IS NULL THEN l.crashes ELSE l.crashes + 1 END",
		"OUTPUT inserted.lane, inserted.fence, COALESCE(inserted.marks, N''), inserted.crashes, COALESCE(inserted.journal, N''), CONVERT(bigint, 0)",
		"FROM (SELECT TOP (64) lane FROM "+table.Lanes()+" WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE owner IS NULL OR until < SYSUTCDATETIME() ORDER BY NEWID()) AS free",
		"INNER JOIN "+table.Lanes()+" AS l WITH (INDEX("+table.IndexName("lanes_fence")+"), XLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    ON l.lane = free.lane AND (l.owner IS NULL OR l.until < SYSUTCDATETIME())",
		"OPTION (FORCE ORDER, LOOP JOIN)"))
}

// sqlserverMarks are the ones given, if they were made in this epoch.
func sqlserverMarks(a *sqlserverArgs, epoch string) string {
	if epoch == "" {
		return "g.marks"
	}
	return "CASE WHEN " + sqlserverServer + " = " + a.add(epoch) + " THEN g.marks ELSE l.marks END"
}

func (sqlserver) Renew(table Table, relay, epoch string, leases []Lease, ttl time.Duration) Steps {
	var a sqlserverArgs
	return alone(a.write(append([]string{
		"UPDATE l",
		"SET until = " + a.in(ttl) + ", marks = " + sqlserverMarks(&a, epoch) + ",",
		"    crashes = CASE WHEN g.calm = 1 THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm = 1 THEN NULL ELSE l.journal END"},
		sqlserverLeases(&a, table, relay, leases)...)...))
}

func (sqlserver) Release(table Table, relay, epoch string, leases []Lease) Steps {
	var a sqlserverArgs
	return alone(a.write(append([]string{
		"UPDATE l",
		"SET owner = NULL, until = NULL, marks = " + sqlserverMarks(&a, epoch) + ", journal = NULL, crashes = 0"},
		sqlserverLeases(&a, table, relay, leases)...)...))
}

func (sqlserver) Journal(table Table, relay string, leases []Lease) Steps {
	var a sqlserverArgs
	return alone(a.write(append([]string{
		"UPDATE l",
		"SET journal = g.journal"},
		sqlserverLeases(&a, table, relay, leases)...)...))
}

func (sqlserver) Journals(table Table) Query {
	return Query{SQL: "SELECT lane, fence, journal FROM " + table.Lanes() + " WHERE journal IS NOT NULL"}
}

// sqlserverLeases finds the lanes by their key, in its order, so that it doesn't
// meet the settles that are under way.
func sqlserverLeases(a *sqlserverArgs, table Table, relay string, leases []Lease) []string {
	return []string{
		"OUTPUT inserted.lane, inserted.fence, CONVERT(bigint, 0)",
		"FROM OPENJSON(" + sqlserverList(a, column(leases, func(l Lease) []any { return []any{l.Lane, l.Fence, l.Marks, l.Calm, l.Journal} })) + ")",
		"    WITH (lane smallint '$[0]', fence bigint '$[1]', marks nvarchar(max) '$[2]', calm bit '$[3]', journal nvarchar(max) '$[4]') AS g",
		"INNER JOIN " + table.Lanes() + " AS l WITH (INDEX(1), ROWLOCK) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = " + a.add(relay),
		"OPTION (FORCE ORDER, LOOP JOIN)",
	}
}

func (sqlserver) Marks(table Table) Query {
	return Query{SQL: "SELECT lane, marks FROM " + table.Lanes() + " WHERE marks IS NOT NULL ORDER BY lane"}
}
