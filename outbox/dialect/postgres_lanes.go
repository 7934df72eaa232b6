package dialect

import (
	"strconv"
	"time"
)

const postgresXID = "pg_current_xact_id()::text::bigint"

// Acquire passes over lanes that another takes, or in which a settle is under
// way: it locks them FOR UPDATE, which waits for no one here, and which a
// settle's lock excludes until it has committed.
func (postgres) Acquire(table Table, relay string, count int, ttl time.Duration) Steps {
	var a postgresArgs
	return alone(a.query(
		"WITH free AS MATERIALIZED (",
		"    SELECT lane, owner FROM "+table.Lanes(),
		"    WHERE owner IS NULL OR until < now()",
		"    ORDER BY random() LIMIT "+a.int(count)+" FOR UPDATE SKIP LOCKED)",
		"UPDATE "+table.Lanes()+" AS l",
		"SET owner = "+a.text(relay)+", fence = l.fence + 1, until = now() + "+a.interval(ttl)+",",
		"    crashes = CASE WHEN free.owner IS NULL THEN l.crashes ELSE l.crashes + 1 END",
		"FROM free WHERE l.lane = free.lane",
		"RETURNING l.lane, l.fence, COALESCE(l.marks, ''), l.crashes, COALESCE(l.journal, ''), "+postgresXID))
}

func (postgres) Renew(table Table, relay, epoch string, leases []Lease, ttl time.Duration) Steps {
	var a postgresArgs
	return alone(a.query(
		"UPDATE "+table.Lanes()+" AS l",
		"SET until = now() + "+a.interval(ttl)+", marks = "+postgresMarks(&a, table, epoch)+",",
		"    crashes = CASE WHEN g.calm THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm THEN NULL ELSE l.journal END",
		postgresLeases(&a, relay, leases),
		"RETURNING l.lane, l.fence, "+postgresXID))
}

// postgresMarks are the ones given, if they were made in this epoch.
func postgresMarks(a *postgresArgs, table Table, epoch string) string {
	if epoch == "" {
		return "g.marks"
	}
	return "CASE WHEN " + postgresEpoch(table) + " = " + a.text(epoch) + " THEN g.marks ELSE l.marks END"
}

func (postgres) Release(table Table, relay, epoch string, leases []Lease) Steps {
	var a postgresArgs
	return alone(a.query(
		"UPDATE "+table.Lanes()+" AS l",
		"SET owner = NULL, until = NULL, marks = "+postgresMarks(&a, table, epoch)+", journal = NULL, crashes = 0",
		postgresLeases(&a, relay, leases),
		"RETURNING l.lane, l.fence, "+postgresXID))
}

func (postgres) Journal(table Table, relay string, leases []Lease) Steps {
	var a postgresArgs
	return alone(a.query(
		"UPDATE "+table.Lanes()+" AS l SET journal = g.journal",
		postgresLeases(&a, relay, leases),
		"RETURNING l.lane, l.fence, "+postgresXID))
}

func (postgres) Journals(table Table) Query {
	return Query{SQL: "SELECT lane, fence, journal FROM " + table.Lanes() + " WHERE journal IS NOT NULL"}
}

func postgresLeases(a *postgresArgs, relay string, leases []Lease) string {
	return "FROM unnest(" + a.lanes(column(leases, func(l Lease) int { return l.Lane })) +
		", " + a.ids(column(leases, func(l Lease) int64 { return l.Fence })) +
		", " + a.texts(column(leases, func(l Lease) string { return l.Marks })) +
		", " + a.add(postgresArray(leases, func(l Lease) string { return strconv.FormatBool(l.Calm) }), "boolean[]") +
		", " + a.texts(column(leases, func(l Lease) string { return l.Journal })) +
		") AS g (lane, fence, marks, calm, journal)\n" +
		"WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = " + a.text(relay)
}

func (postgres) Marks(table Table) Query {
	return Query{SQL: "SELECT lane, marks FROM " + table.Lanes() + " WHERE marks IS NOT NULL ORDER BY lane"}
}
