package dialect

func (sqlite) OneWriter() bool { return true }

// Begin takes the one lock for writing at once: a transaction that reads first
// and then writes fails if another one has written in between.
func (sqlite) Begin(table Table) []Query {
	return []Query{sqliteQuery("DELETE FROM " + table.Lanes() + " WHERE lane < 0")}
}

func (s sqlite) LockClaim(table Table) Query { return s.ClaimedBy(table) }

func (sqlite) ClaimedBy(table Table) Query {
	return sqliteQuery("SELECT value FROM " + table.Settings() + " WHERE name = 'claim'")
}

func (sqlite) SetClaim(table Table, claim string) Query {
	return sqliteQuery("INSERT INTO "+table.Settings()+" (name, value) VALUES ('claim', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", claim)
}

func (sqlite) OtherRelays(table Table, claim string) Query {
	return sqliteQuery("SELECT name FROM "+table.Relays()+" WHERE until >= "+sqliteNow+" AND claim <> ? ORDER BY name", claim)
}

func (sqlite) Forget(table Table) []Query { return forget(table) }

func (sqlite) Beat(table Table, beat Beat) Steps {
	return alone(sqliteQuery(`
INSERT INTO `+table.Relays()+` AS r (name, host, version, claim, since, last_beat, until)
SELECT ?, ?, ?, ?, `+sqliteNow+`, `+sqliteNow+`, `+sqliteIn+`
WHERE NOT EXISTS (SELECT 1 FROM `+table.Settings()+` WHERE name = 'claim' AND value <> ?)
ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version, claim = excluded.claim,
    since = CASE WHEN r.until < `+sqliteNow+` THEN excluded.since ELSE r.since END, last_beat = excluded.last_beat, until = excluded.until
RETURNING name, 0, ''`,
		beat.Name, beat.Host, beat.Version, beat.Claim, sqliteSeconds(beat.TTL), beat.Claim))
}

func (sqlite) Census(table Table) Query {
	return sqliteQuery("SELECT name FROM " + table.Relays() + " WHERE until >= " + sqliteNow + " ORDER BY name")
}

func (sqlite) Leave(table Table, name string) Query {
	return sqliteQuery("DELETE FROM "+table.Relays()+" WHERE name = ?", name)
}

func (sqlite) PurgeRelays(table Table) Query {
	return sqliteQuery("DELETE FROM " + table.Relays() + " WHERE until < strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day')")
}
