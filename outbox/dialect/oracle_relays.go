package dialect

func (oracle) OneWriter() bool { return false }

// Begin lets one at a time change several things. Nothing bounds the wait: those
// who hold this lock wait for none that an application holds.
func (oracle) Begin(table Table) []Query {
	return []Query{{SQL: "UPDATE " + table.Settings() + " SET value = value WHERE name = 'schema'"}}
}

func (oracle) LockClaim(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = 'claim' FOR UPDATE"}
}

func (oracle) ClaimedBy(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = 'claim'"}
}

func (oracle) SetClaim(table Table, claim string) Query {
	var a oracleArgs
	return a.query(
		"MERGE INTO "+table.Settings()+" s USING (SELECT 'claim' AS name, "+a.add(claim)+" AS value FROM dual) g ON (s.name = g.name)",
		"WHEN MATCHED THEN UPDATE SET s.value = g.value",
		"WHEN NOT MATCHED THEN INSERT (name, value) VALUES (g.name, g.value)")
}

func (oracle) OtherRelays(table Table, claim string) Query {
	var a oracleArgs
	return a.query("SELECT name FROM " + table.Relays() + " WHERE until >= " + oracleNow + " AND claim <> " + a.add(claim) + " ORDER BY name")
}

// Forget waits for settles that are under way: it takes all their locks.
func (oracle) Forget(table Table) []Query {
	var a oracleArgs
	lock := a.lockAll("SELECT lock_id FROM " + oracleLocks(table) + " WHERE lock_id < " + oracleKeyLocks + " ORDER BY lock_id FOR UPDATE")
	return append([]Query{lock},
		Query{SQL: "UPDATE " + table.Lanes() + " SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0"},
		Query{SQL: "UPDATE " + table.Hot() + " SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL WHERE claimed_until IS NOT NULL"})
}

// Beat locks the way of claiming for a moment: who changes it at the same time
// sees either this relay, or is seen.
func (oracle) Beat(table Table, beat Beat) Steps {
	var lock, merge, ask oracleArgs
	ours := func(a *oracleArgs) string {
		return "NOT EXISTS (SELECT 1 FROM " + table.Settings() + " WHERE name = 'claim' AND value <> " + a.add(beat.Claim) + ")"
	}
	return Steps{
		Do: []Query{
			lock.lockAll("SELECT value FROM " + table.Settings() + " WHERE name = 'claim' FOR UPDATE"),
			merge.query(
				"MERGE INTO "+table.Relays()+" r USING (",
				"    SELECT "+merge.add(beat.Name)+" AS name, "+merge.add(beat.Host)+" AS host, "+merge.add(beat.Version)+" AS version, "+merge.add(beat.Claim)+" AS claim,",
				"        "+oracleNow+" AS beaten, "+merge.in(beat.TTL)+" AS until",
				"    FROM dual WHERE "+ours(&merge)+") g ON (r.name = g.name)",
				"WHEN MATCHED THEN UPDATE SET r.host = g.host, r.version = g.version, r.claim = g.claim,",
				"    r.since = CASE WHEN r.until < g.beaten THEN g.beaten ELSE r.since END, r.last_beat = g.beaten, r.until = g.until",
				"WHEN NOT MATCHED THEN INSERT (name, host, version, claim, since, last_beat, until)",
				"    VALUES (g.name, g.host, g.version, g.claim, g.beaten, g.beaten, g.until)"),
		},
		Ask: ask.query("SELECT name, 0, " + oracleServer + " FROM " + table.Relays() + " WHERE name = " + ask.add(beat.Name) + " AND " + ours(&ask)),
	}
}

func (oracle) Census(table Table) Query {
	return Query{SQL: "SELECT name FROM " + table.Relays() + " WHERE until >= " + oracleNow + " ORDER BY name"}
}

func (oracle) Leave(table Table, name string) Query {
	var a oracleArgs
	return a.query("DELETE FROM " + table.Relays() + " WHERE name = " + a.add(name))
}

func (oracle) PurgeRelays(table Table) Query {
	return Query{SQL: "DELETE FROM " + table.Relays() + " WHERE until < " + oracleNow + " - INTERVAL '1' DAY"}
}
