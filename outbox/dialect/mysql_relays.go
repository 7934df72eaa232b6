package dialect

import "strings"

func (mysql) OneWriter() bool { return false }

// Begin does nothing: no wait can be bounded for one transaction alone.
func (mysql) Begin(Table) []Query { return nil }

func (d mysql) LockClaim(table Table) Query {
	query := d.ClaimedBy(table)
	query.SQL += " FOR UPDATE"
	return query
}

func (mysql) ClaimedBy(table Table) Query {
	return mysqlQuery("SELECT value FROM " + table.Backquoted().Settings() + " WHERE name = 'claim'")
}

func (mysql) SetClaim(table Table, claim string) Query {
	return mysqlQuery("INSERT INTO "+table.Backquoted().Settings()+" (name, value) VALUES ('claim', ?) ON DUPLICATE KEY UPDATE value = ?", claim, claim)
}

func (mysql) OtherRelays(table Table, claim string) Query {
	return mysqlQuery("SELECT name FROM "+table.Backquoted().Relays()+" WHERE `until` >= "+mysqlNow+" AND claim <> ? ORDER BY name", claim)
}

// Forget waits for settles that are under way.
func (mysql) Forget(table Table) []Query {
	table = table.Backquoted()
	queries := append([]Query{mysqlQuery("SELECT lane FROM " + table.LaneLocks() + " ORDER BY lane FOR UPDATE")}, forget(table)...)
	for i := range queries {
		queries[i].SQL = strings.Replace(queries[i].SQL, " until =", " `until` =", 1) // which TiDB reserves
	}
	return queries
}

// Beat locks the way of claiming: who changes it at the same time sees either
// this relay, or is seen.
func (d mysql) Beat(table Table, beat Beat) Steps {
	table = table.Backquoted()
	another := "EXISTS (SELECT 1 FROM " + table.Settings() + " WHERE name = 'claim' AND value <> ?)"
	insert := (&mysqlText{}).
		add("INSERT INTO "+table.Relays()+" (name, host, version, claim, since, last_beat, `until`)\n"+
			"SELECT ?, ?, ?, ?, "+mysqlNow+", "+mysqlNow+", "+mysqlIn(beat.TTL)+" FROM DUAL WHERE NOT "+another,
			beat.Name, beat.Host, beat.Version, beat.Claim, beat.Claim).
		add("\nON DUPLICATE KEY UPDATE host = ?, version = ?, claim = ?, since = CASE WHEN `until` < "+mysqlNow+" THEN "+mysqlNow+" ELSE since END,"+
			" last_beat = "+mysqlNow+", `until` = "+mysqlIn(beat.TTL), beat.Host, beat.Version, beat.Claim)
	return Steps{
		Do: []Query{
			mysqlQuery("SELECT value FROM " + table.Settings() + " WHERE name = 'claim'" + d.share()),
			insert.query(),
		},
		Ask: mysqlQuery("SELECT name, 0, "+d.server()+" FROM "+table.Relays()+" WHERE name = ? AND NOT "+another, beat.Name, beat.Claim),
	}
}

func (mysql) Census(table Table) Query {
	return mysqlQuery("SELECT name FROM " + table.Backquoted().Relays() + " WHERE `until` >= " + mysqlNow + " ORDER BY name")
}

func (mysql) Leave(table Table, name string) Query {
	return mysqlQuery("DELETE FROM "+table.Backquoted().Relays()+" WHERE name = ?", name)
}

func (mysql) PurgeRelays(table Table) Query {
	return mysqlQuery("DELETE FROM " + table.Backquoted().Relays() + " WHERE `until` < " + mysqlNow + " - INTERVAL 1 DAY")
}
