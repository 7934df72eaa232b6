package oracle

import (
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// acquire takes all locks of a lane, and passes over one that it doesn't get at
// once: there a settle is under way, or another takeover. Then the lane is looked
// at again, as it is now. The order is another one each time, so that relays
// don't meet at the same lanes.
func (d *Oracle) acquire(relay string, count int, ttl time.Duration) steps {
	const free = "(owner IS NULL OR until < " + now + ")"
	var a args
	return steps{
		do: []backend.Query{a.query(
			"DECLARE",
			stamp,
			"    wanted NUMBER := "+a.int(count)+";",
			"    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;",
			"    locked numbers;",
			"    taken EXCEPTION;",
			"    PRAGMA EXCEPTION_INIT(taken, -54);",
			"BEGIN",
			"    FOR candidate IN (SELECT lane FROM "+d.table.Lanes+" WHERE "+free,
			"        ORDER BY ORA_HASH(lane || TO_CHAR(SYSTIMESTAMP, 'SSSSSFF6') || "+a.add(relay)+")) LOOP",
			"        EXIT WHEN wanted <= 0;",
			"        BEGIN",
			"            SELECT lock_id BULK COLLECT INTO locked FROM "+locks(d.table),
			"            WHERE lock_id BETWEEN "+laneSlots+" * candidate.lane AND "+laneSlots+" * candidate.lane + "+laneSlots+" - 1 FOR UPDATE NOWAIT;",
			"            SELECT lane BULK COLLECT INTO locked FROM "+d.table.Lanes+" WHERE lane = candidate.lane FOR UPDATE NOWAIT;",
			"            UPDATE "+d.table.Lanes+" SET owner = "+a.add(relay)+", fence = fence + 1, until = "+a.in(ttl)+",",
			"                crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END, stamp = this_transaction",
			"            WHERE lane = candidate.lane AND "+free+";",
			"            wanted := wanted - SQL%ROWCOUNT;",
			"        EXCEPTION WHEN taken THEN NULL;",
			"        END;",
			"    END LOOP;",
			"END;")},
		ask: stampedLanes(d.table, "lane, fence, marks, crashes, journal, 0"),
	}
}

func stampedLanes(table dialect.Table, columns string) backend.Query {
	return backend.Query{SQL: "SELECT " + columns + " FROM " + table.Lanes + " WHERE stamp = " + stamped + " ORDER BY lane"}
}

// givenMarks are the ones given, if they were made in this epoch.
func marks(a *args, epoch, marks string) string {
	if epoch == "" {
		return a.add(marks)
	}
	return "CASE WHEN " + server + " = " + a.add(epoch) + " THEN " + a.add(marks) + " ELSE marks END"
}

// changeLeases is a block of one statement a lease, as a list of them would have
// no room for a text of any length.
func (d *Oracle) changeLeases(change backend.LeaseChange, leases []backend.Lease) steps {
	var a args
	block := "DECLARE\n" + stamp + "\nBEGIN\n"
	for _, lease := range leases {
		set := ""
		switch change.Kind {
		case backend.Renew:
			set = "until = " + a.in(change.TTL) + ", marks = " + marks(&a, change.Epoch, lease.Marks)
			if lease.Calm {
				set += ", crashes = 0, journal = NULL"
			}
		case backend.Release:
			set = "owner = NULL, until = NULL, marks = " + marks(&a, change.Epoch, lease.Marks) + ", journal = NULL, crashes = 0"
		case backend.WriteJournal:
			set = "journal = " + a.add(lease.Journal)
		}
		block += "    UPDATE " + d.table.Lanes + " SET " + set + ", stamp = this_transaction" +
			"\n    WHERE lane = " + a.int(lease.Lane) + " AND fence = " + a.add(lease.Fence) + " AND owner = " + a.add(change.Relay) + ";\n"
	}
	return steps{
		do:  []backend.Query{a.query(block + "END;")},
		ask: stampedLanes(d.table, "lane, fence, 0"),
	}
}
