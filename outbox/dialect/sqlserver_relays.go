package dialect

import "time"

func (sqlserver) OneWriter() bool { return false }

// Begin bounds the wait for locks, until the connection goes back to its pool:
// who changes the way of claiming may have to lock the table, and whoever waits
// for that lock holds up all producers.
func (sqlserver) Begin(Table) []Query {
	return []Query{{SQL: "SET LOCK_TIMEOUT 3000"}}
}

// LockClaim also locks the place of a row that isn't there yet.
func (sqlserver) LockClaim(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WITH (XLOCK, HOLDLOCK, ROWLOCK) WHERE name = N'claim'"}
}

func (sqlserver) ClaimedBy(table Table) Query {
	return Query{SQL: "SELECT value FROM " + table.Settings() + " WHERE name = N'claim'"}
}

func (sqlserver) SetClaim(table Table, claim string) Query {
	var a sqlserverArgs
	value := a.add(claim)
	return a.query(
		"UPDATE "+table.Settings()+" SET value = "+value+" WHERE name = N'claim';",
		"IF @@ROWCOUNT = 0 INSERT INTO "+table.Settings()+" (name, value) VALUES (N'claim', "+value+")")
}

func (sqlserver) OtherRelays(table Table, claim string) Query {
	var a sqlserverArgs
	return a.query("SELECT name FROM " + table.Relays() + " WHERE until >= SYSUTCDATETIME() AND claim <> " + a.add(claim) + " ORDER BY name")
}

// Forget waits for settles that are under way, as it changes the fences. Rows
// that are locked are those of open writers, which nobody has claimed.
func (sqlserver) Forget(table Table) []Query {
	queries := forget(table)
	queries[1].SQL = "UPDATE " + table.Hot() + " WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)" +
		"\nSET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL"
	return queries
}

// Beat locks the way of claiming: who changes it at the same time sees either
// this relay, or is seen.
func (sqlserver) Beat(table Table, beat Beat) Steps {
	var a sqlserverArgs
	name, host, version, claim := a.add(beat.Name), a.add(beat.Host), a.add(beat.Version), a.add(beat.Claim)
	until := a.in(beat.TTL)
	return alone(a.query(
		sqlserverPrepare,
		"DECLARE @alive bit = 1;",
		sqlserverBegin,
		"IF EXISTS (SELECT 1 FROM "+table.Settings()+" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value <> "+claim+") SET @alive = 0;",
		"UPDATE "+table.Relays()+" WITH (ROWLOCK)",
		"SET host = "+host+", version = "+version+", claim = "+claim+",",
		"    since = CASE WHEN until < SYSUTCDATETIME() THEN SYSUTCDATETIME() ELSE since END, last_beat = SYSUTCDATETIME(), until = "+until,
		"WHERE name = "+name+" AND @alive = 1;",
		"IF @@ROWCOUNT = 0 AND @alive = 1",
		"    INSERT INTO "+table.Relays()+" (name, host, version, claim, since, last_beat, until)",
		"    VALUES ("+name+", "+host+", "+version+", "+claim+", SYSUTCDATETIME(), SYSUTCDATETIME(), "+until+");",
		sqlserverCommit,
		"SELECT "+name+", CONVERT(bigint, 0), "+sqlserverServer+" WHERE @alive = 1"))
}

// Several statements that are one transaction: whatever fails, also the wait for
// the answer, takes them all back. Within a handler's transaction they are a part
// of it, and begin and end none.
const (
	sqlserverPrepare = "SET NOCOUNT ON;\nSET XACT_ABORT ON;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n" +
		"DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;"
	sqlserverBegin  = "IF @own = 1 BEGIN TRANSACTION;"
	sqlserverCommit = "IF @own = 1 COMMIT TRANSACTION;"
)

func (d sqlserver) Census(table Table) Query {
	return d.read(&sqlserverArgs{}, "SELECT name FROM "+table.Relays()+" WHERE until >= SYSUTCDATETIME() ORDER BY name")
}

func (sqlserver) Leave(table Table, name string) Query {
	var a sqlserverArgs
	return a.query("DELETE FROM " + table.Relays() + " WHERE name = " + a.add(name))
}

func (sqlserver) PurgeRelays(table Table) Query {
	var a sqlserverArgs
	return a.write("DELETE FROM " + table.Relays() + " WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE until < " + a.ago(24*time.Hour))
}
