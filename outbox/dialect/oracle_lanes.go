package dialect

import (
	"strings"
	"time"
)

// Acquire takes all locks of a lane, and passes over one that it doesn't get at
// once: there a settle is under way, or another takeover. Then the lane is looked
// at again, as it is now. The order is another one each time, so that relays
// don't meet at the same lanes.
func (oracle) Acquire(table Table, relay string, count int, ttl time.Duration) Steps {
	const free = "(owner IS NULL OR until < " + oracleNow + ")"
	var a oracleArgs
	return Steps{
		Do: []Query{a.query(
			"DECLARE",
			oracleStamp,
			"    wanted NUMBER := "+a.int(count)+";",
			"    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;",
			"    locked numbers;",
			"    taken EXCEPTION;",
			"    PRAGMA EXCEPTION_INIT(taken, -54);",
			"BEGIN",
			"    FOR candidate IN (SELECT lane FROM "+table.Lanes()+" WHERE "+free,
			"        ORDER BY ORA_HASH(lane || TO_CHAR(SYSTIMESTAMP, 'SSSSSFF6') || "+a.add(relay)+")) LOOP",
			"        EXIT WHEN wanted <= 0;",
			"        BEGIN",
			"            SELECT lock_id BULK COLLECT INTO locked FROM "+oracleLocks(table),
			"            WHERE lock_id BETWEEN "+oracleLaneSlots+" * candidate.lane AND "+oracleLaneSlots+" * candidate.lane + "+oracleLaneSlots+" - 1 FOR UPDATE NOWAIT;",
			"            SELECT lane BULK COLLECT INTO locked FROM "+table.Lanes()+" WHERE lane = candidate.lane FOR UPDATE NOWAIT;",
			"            UPDATE "+table.Lanes()+" SET owner = "+a.add(relay)+", fence = fence + 1, until = "+a.in(ttl)+",",
			"                crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END, stamp = this_transaction",
			"            WHERE lane = candidate.lane AND "+free+";",
			"            wanted := wanted - SQL%ROWCOUNT;",
			"        EXCEPTION WHEN taken THEN NULL;",
			"        END;",
			"    END LOOP;",
			"END;")},
		Ask: oracleStampedLanes(table, "lane, fence, marks, crashes, journal, 0"),
	}
}

func oracleStampedLanes(table Table, columns string) Query {
	return Query{SQL: "SELECT " + columns + " FROM " + table.Lanes() + " WHERE stamp = " + oracleStamped + " ORDER BY lane"}
}

// oracleMarks are the ones given, if they were made in this epoch.
func oracleMarks(a *oracleArgs, epoch, marks string) string {
	if epoch == "" {
		return a.add(marks)
	}
	return "CASE WHEN " + oracleServer + " = " + a.add(epoch) + " THEN " + a.add(marks) + " ELSE marks END"
}

func (oracle) Renew(table Table, relay, epoch string, leases []Lease, ttl time.Duration) Steps {
	return oracleChange(table, relay, leases, func(a *oracleArgs, lease Lease) string {
		set := "until = " + a.in(ttl) + ", marks = " + oracleMarks(a, epoch, lease.Marks)
		if lease.Calm {
			set += ", crashes = 0, journal = NULL"
		}
		return set
	})
}

func (oracle) Release(table Table, relay, epoch string, leases []Lease) Steps {
	return oracleChange(table, relay, leases, func(a *oracleArgs, lease Lease) string {
		return "owner = NULL, until = NULL, marks = " + oracleMarks(a, epoch, lease.Marks) + ", journal = NULL, crashes = 0"
	})
}

func (oracle) Journal(table Table, relay string, leases []Lease) Steps {
	return oracleChange(table, relay, leases, func(a *oracleArgs, lease Lease) string {
		return "journal = " + a.add(lease.Journal)
	})
}

func (oracle) Journals(table Table) Query {
	return Query{SQL: "SELECT lane, fence, journal FROM " + table.Lanes() + " WHERE journal IS NOT NULL"}
}

// oracleChange is a block of one statement a lease, as a list of them would have
// no room for a text of any length.
func oracleChange(table Table, relay string, leases []Lease, set func(*oracleArgs, Lease) string) Steps {
	var a oracleArgs
	statements := make([]string, len(leases))
	for i, lease := range leases {
		statements[i] = "    UPDATE " + table.Lanes() + " SET " + set(&a, lease) + ", stamp = this_transaction" +
			"\n    WHERE lane = " + a.int(lease.Lane) + " AND fence = " + a.add(lease.Fence) + " AND owner = " + a.add(relay) + ";"
	}
	return Steps{
		Do:  []Query{a.query("DECLARE", oracleStamp, "BEGIN", strings.Join(statements, "\n"), "END;")},
		Ask: oracleStampedLanes(table, "lane, fence, 0"),
	}
}

func (oracle) Marks(table Table) Query {
	return Query{SQL: "SELECT lane, marks FROM " + table.Lanes() + " WHERE marks IS NOT NULL ORDER BY lane"}
}
