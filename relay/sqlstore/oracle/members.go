package oracle

import (
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

func (d *Oracle) lockClaimMode() backend.Query {
	return backend.Query{SQL: "SELECT value FROM " + d.table.Settings + " WHERE name = 'claim' FOR UPDATE"}
}

func (d *Oracle) claimMode() backend.Query {
	return backend.Query{SQL: "SELECT value FROM " + d.table.Settings + " WHERE name = 'claim'"}
}

func (d *Oracle) setClaimMode(claim string) backend.Query {
	var a args
	return a.query(
		"MERGE INTO "+d.table.Settings+" s USING (SELECT 'claim' AS name, "+a.add(claim)+" AS value FROM dual) g ON (s.name = g.name)",
		"WHEN MATCHED THEN UPDATE SET s.value = g.value",
		"WHEN NOT MATCHED THEN INSERT (name, value) VALUES (g.name, g.value)")
}

func (d *Oracle) otherRelays(claim string) backend.Query {
	var a args
	return a.query("SELECT name FROM " + d.table.Relays + " WHERE until >= " + now + " AND claim <> " + a.add(claim) + " ORDER BY name")
}

// forget waits for settles that are under way: it takes all their locks.
func (d *Oracle) forget() []backend.Query {
	var a args
	lock := a.lockAll("SELECT lock_id FROM " + locks(d.table) + " WHERE lock_id < " + keyLocks + " ORDER BY lock_id FOR UPDATE")
	return append([]backend.Query{lock},
		backend.Query{SQL: "UPDATE " + d.table.Lanes + " SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0"},
		backend.Query{SQL: "UPDATE " + d.table.Hot + " SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL WHERE claimed_until IS NOT NULL"})
}

// heartbeat locks the way of claiming for a moment: who changes it at the same time
// sees either this relay, or is seen.
func (d *Oracle) heartbeat(beat relay.Identity, ttl time.Duration) steps {
	var lock, merge, ask args
	ours := func(a *args) string {
		return "NOT EXISTS (SELECT 1 FROM " + d.table.Settings + " WHERE name = 'claim' AND value <> " + a.add(string(beat.Claim)) + ")"
	}
	return steps{
		do: []backend.Query{
			lock.lockAll("SELECT value FROM " + d.table.Settings + " WHERE name = 'claim' FOR UPDATE"),
			merge.query(
				"MERGE INTO "+d.table.Relays+" r USING (",
				"    SELECT "+merge.add(beat.Name)+" AS name, "+merge.add(beat.Host)+" AS host, "+merge.add(beat.Version)+" AS version, "+merge.add(string(beat.Claim))+" AS claim,",
				"        "+now+" AS beaten, "+merge.in(ttl)+" AS until",
				"    FROM dual WHERE "+ours(&merge)+") g ON (r.name = g.name)",
				"WHEN MATCHED THEN UPDATE SET r.host = g.host, r.version = g.version, r.claim = g.claim,",
				"    r.since = CASE WHEN r.until < g.beaten THEN g.beaten ELSE r.since END, r.last_beat = g.beaten, r.until = g.until",
				"WHEN NOT MATCHED THEN INSERT (name, host, version, claim, since, last_beat, until)",
				"    VALUES (g.name, g.host, g.version, g.claim, g.beaten, g.beaten, g.until)"),
		},
		ask: ask.query("SELECT name, 0, " + server + " FROM " + d.table.Relays + " WHERE name = " + ask.add(beat.Name) + " AND " + ours(&ask)),
	}
}

func (d *Oracle) members() backend.Query {
	return backend.Query{SQL: "SELECT name FROM " + d.table.Relays + " WHERE until >= " + now + " ORDER BY name"}
}

func (d *Oracle) deregister(name string) backend.Query {
	var a args
	return a.query("DELETE FROM " + d.table.Relays + " WHERE name = " + a.add(name))
}

func (d *Oracle) purgeRelays() backend.Query {
	return backend.Query{SQL: "DELETE FROM " + d.table.Relays + " WHERE until < " + now + " - INTERVAL '1' DAY"}
}
