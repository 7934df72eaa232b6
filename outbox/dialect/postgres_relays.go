package dialect

func (postgres) OneWriter() bool { return false }

// Begin bounds the wait for locks: who changes the way of claiming may have to
// lock the table, and whoever waits for that lock holds up all producers.
func (postgres) Begin(Table) []Query {
	return []Query{{SQL: "SELECT set_config('lock_timeout', '3s', true)"}}
}

func (postgres) LockClaim(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = 'claim' FOR UPDATE"}
}

func (postgres) ClaimedBy(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = 'claim'"}
}

func (postgres) SetClaim(table Table, claim string) Query {
	var a postgresArgs
	return a.query(
		"INSERT INTO "+table.Settings()+" (name, value) VALUES ('claim', "+a.text(claim)+")",
		"ON CONFLICT (name) DO UPDATE SET value = excluded.value")
}

func (postgres) OtherRelays(table Table, claim string) Query {
	var a postgresArgs
	return a.query("SELECT name FROM " + table.Relays() + " WHERE until >= now() AND claim <> " + a.text(claim) + " ORDER BY name")
}

// Forget waits for settles that are under way.
func (postgres) Forget(table Table) []Query {
	return append([]Query{{SQL: "SELECT lane FROM " + table.Lanes() + " ORDER BY lane FOR UPDATE"}}, forget(table)...)
}

// Beat locks the way of claiming: who changes it at the same time sees either
// this relay, or is seen.
func (postgres) Beat(table Table, beat Beat) Steps {
	var a postgresArgs
	return alone(a.query(append(postgresBeat(&a, table, beat), "RETURNING name, "+postgresXID+", "+postgresEpoch(table))...))
}

func postgresBeat(a *postgresArgs, table Table, beat Beat) []string {
	return []string{
		"WITH claim AS MATERIALIZED (",
		"    SELECT value FROM " + table.Settings() + " WHERE name = 'claim' FOR SHARE)",
		"INSERT INTO " + table.Relays() + " AS r (name, host, version, claim, since, last_beat, until)",
		"SELECT " + a.text(beat.Name) + ", " + a.text(beat.Host) + ", " + a.text(beat.Version) + ", " + a.text(beat.Claim) + ", now(), now(), now() + " + a.interval(beat.TTL),
		"WHERE NOT EXISTS (SELECT 1 FROM claim WHERE value <> " + a.text(beat.Claim) + ")",
		"ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version, claim = excluded.claim,",
		"    since = CASE WHEN r.until < now() THEN now() ELSE r.since END, last_beat = now(), until = excluded.until",
	}
}

func (postgres) Census(table Table) Query {
	return Query{SQL: "SELECT name FROM " + table.Relays() + " WHERE until >= now() ORDER BY name"}
}

func (postgres) Leave(table Table, name string) Query {
	var a postgresArgs
	return a.query("DELETE FROM " + table.Relays() + " WHERE name = " + a.text(name))
}

func (postgres) PurgeRelays(table Table) Query {
	return Query{SQL: "DELETE FROM " + table.Relays() + " WHERE until < now() - interval '1 day'"}
}

func forget(table Table) []Query {
	return []Query{
		{SQL: "UPDATE " + table.Lanes() + " SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0"},
		{SQL: "UPDATE " + table.Hot() + " SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL"},
	}
}
