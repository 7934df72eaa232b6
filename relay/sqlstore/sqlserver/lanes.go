package sqlserver

import (
	"context"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Acquire implements [backend.Lanes]. It passes over lanes that another changes, or in
// which a settle is under way. A settle holds a shared lock on the lane's entry in the
// index of fences, which a renewal doesn't touch, and which is asked for exclusively
// here. The lanes are put in a random order before any is locked: sorting rows that are
// locked would lock them all.
func (d *SQLServer) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) ([]relay.Grant, uint64, error) {
	var a args
	return backend.Grants(ctx, d.db, a.write(
		"UPDATE TOP ("+a.int(count)+") l",
		"SET owner = "+a.add(relay)+", fence = l.fence + 1, until = "+a.in(ttl)+",",
		"    crashes = CASE WHEN l.owner IS NULL THEN l.crashes ELSE l.crashes + 1 END",
		"OUTPUT inserted.lane, inserted.fence, COALESCE(inserted.marks, N''), inserted.crashes, COALESCE(inserted.journal, N''), CONVERT(bigint, 0)",
		"FROM (SELECT TOP (64) lane FROM "+d.table.Lanes+" WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    WHERE owner IS NULL OR until < SYSUTCDATETIME() ORDER BY NEWID()) AS free",
		"INNER JOIN "+d.table.Lanes+" AS l WITH (INDEX("+d.table.IndexName("lanes_fence")+"), XLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)",
		"    ON l.lane = free.lane AND (l.owner IS NULL OR l.until < SYSUTCDATETIME())",
		"OPTION (FORCE ORDER, LOOP JOIN)"))
}

// givenMarks are the ones given, if they were made in this epoch.
func givenMarks(a *args, epoch string) string {
	if epoch == "" {
		return "g.marks"
	}
	return "CASE WHEN " + server + " = " + a.add(epoch) + " THEN g.marks ELSE l.marks END"
}

// ChangeLeases implements [backend.Backend]. It finds the lanes by their key, in its order,
// so that it doesn't meet the settles that are under way.
func (d *SQLServer) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) ([]relay.Lease, uint64, error) {
	var a args
	set := ""
	switch change.Kind {
	case backend.Renew:
		set = "until = " + a.in(change.TTL) + ", marks = " + givenMarks(&a, change.Epoch) + "," +
			"\n    crashes = CASE WHEN g.calm = 1 THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm = 1 THEN NULL ELSE l.journal END"
	case backend.Release:
		set = "owner = NULL, until = NULL, marks = " + givenMarks(&a, change.Epoch) + ", journal = NULL, crashes = 0"
	case backend.WriteJournal:
		set = "journal = g.journal"
	}
	return backend.Leases(ctx, d.db, a.write(
		"UPDATE l",
		"SET "+set,
		"OUTPUT inserted.lane, inserted.fence, CONVERT(bigint, 0)",
		"FROM OPENJSON("+list(&a, backend.Column(leases, func(l *backend.Lease) []any { return []any{l.Lane, l.Fence, l.Marks, l.Calm, l.Journal} }))+")",
		"    WITH (lane smallint '$[0]', fence bigint '$[1]', marks nvarchar(max) '$[2]', calm bit '$[3]', journal nvarchar(max) '$[4]') AS g",
		"INNER JOIN "+d.table.Lanes+" AS l WITH (INDEX(1), ROWLOCK) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = "+a.add(change.Relay),
		"OPTION (FORCE ORDER, LOOP JOIN)"))
}
