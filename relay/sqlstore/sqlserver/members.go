package sqlserver

import (
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// lockClaimMode also locks the place of a row that isn't there yet.
func (d *SQLServer) lockClaimMode() backend.Query {
	return backend.Query{SQL: "SELECT value FROM " + d.table.Settings + " WITH (XLOCK, HOLDLOCK, ROWLOCK) WHERE name = N'claim'"}
}

func (d *SQLServer) claimMode() backend.Query {
	return backend.Query{SQL: "SELECT value FROM " + d.table.Settings + " WHERE name = N'claim'"}
}

func (d *SQLServer) setClaimMode(claim string) backend.Query {
	var a args
	value := a.add(claim)
	return a.query(
		"UPDATE "+d.table.Settings+" SET value = "+value+" WHERE name = N'claim';",
		"IF @@ROWCOUNT = 0 INSERT INTO "+d.table.Settings+" (name, value) VALUES (N'claim', "+value+")")
}

func (d *SQLServer) otherRelays(claim string) backend.Query {
	var a args
	return a.query("SELECT name FROM " + d.table.Relays + " WHERE until >= SYSUTCDATETIME() AND claim <> " + a.add(claim) + " ORDER BY name")
}

// forget waits for settles that are under way, as it changes the fences. Rows
// that are locked are those of open writers, which nobody has claimed.
func (d *SQLServer) forget() []backend.Query {
	return []backend.Query{
		{SQL: "UPDATE " + d.table.Lanes + " SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0"},
		{SQL: "UPDATE " + d.table.Hot + " WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)" +
			"\nSET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL"},
	}
}

// heartbeat locks the way of claiming: who changes it at the same time sees either
// this relay, or is seen.
func (d *SQLServer) heartbeat(beat relay.Identity, ttl time.Duration) backend.Query {
	var a args
	name, host, version, claim := a.add(beat.Name), a.add(beat.Host), a.add(beat.Version), a.add(string(beat.Claim))
	until := a.in(ttl)
	return a.query(
		prepare,
		"DECLARE @alive bit = 1;",
		begin,
		"IF EXISTS (SELECT 1 FROM "+d.table.Settings+" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value <> "+claim+") SET @alive = 0;",
		"UPDATE "+d.table.Relays+" WITH (ROWLOCK)",
		"SET host = "+host+", version = "+version+", claim = "+claim+",",
		"    since = CASE WHEN until < SYSUTCDATETIME() THEN SYSUTCDATETIME() ELSE since END, last_beat = SYSUTCDATETIME(), until = "+until,
		"WHERE name = "+name+" AND @alive = 1;",
		"IF @@ROWCOUNT = 0 AND @alive = 1",
		"    INSERT INTO "+d.table.Relays+" (name, host, version, claim, since, last_beat, until)",
		"    VALUES ("+name+", "+host+", "+version+", "+claim+", SYSUTCDATETIME(), SYSUTCDATETIME(), "+until+");",
		commit,
		"SELECT "+name+", CONVERT(bigint, 0), "+server+" WHERE @alive = 1")
}

// Several statements that are one transaction: whatever fails, also the wait for
// the answer, takes them all back. Within a handler's transaction they are a part
// of it, and begin and end none.
const (
	prepare = "SET NOCOUNT ON;\nSET XACT_ABORT ON;\nSET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n" +
		"DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;"
	begin  = "IF @own = 1 BEGIN TRANSACTION;"
	commit = "IF @own = 1 COMMIT TRANSACTION;"
)

func (d *SQLServer) members() backend.Query {
	return d.read(&args{}, "SELECT name FROM "+d.table.Relays+" WHERE until >= SYSUTCDATETIME() ORDER BY name")
}

func (d *SQLServer) deregister(name string) backend.Query {
	var a args
	return a.query("DELETE FROM " + d.table.Relays + " WHERE name = " + a.add(name))
}

func (d *SQLServer) purgeRelays() backend.Query {
	var a args
	return a.write("DELETE FROM " + d.table.Relays + " WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE until < " + a.ago(24*time.Hour))
}
