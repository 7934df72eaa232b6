package dialect

import (
	"slices"
	"strconv"
	"strings"
)

// sqlserver knows the isolation level at which a plain SELECT waits for no
// writer and sees one moment: see [sqlserver.Fit].
type sqlserver struct{ reading string }

// SQLServer is the dialect of SQL Server 2016 and later, and of Azure SQL. It
// is for a database that allows snapshot isolation; Fit also takes one whose
// READ COMMITTED reads snapshots.
func SQLServer() Dialect { return sqlserver{reading: "SNAPSHOT"} }

// ReadingLevel is the isolation level at which a plain SELECT of the dialect waits for no
// writer and sees one moment.
func ReadingLevel(d Dialect) string {
	if fitted, ok := d.(sqlserver); ok {
		return fitted.reading
	}
	return ""
}

// Name returns "sqlserver".
func (sqlserver) Name() string { return "sqlserver" }

// LockKeys takes one application lock a key, in the order of the keys' bytes.
// Any producer can take the same lock, so its name must not change: see
// SQLSERVER.md.
func (sqlserver) LockKeys(table Table, keys []string) []Query {
	var queries []Query
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		var a sqlserverArgs
		queries = append(queries, a.query(
			"DECLARE @name nvarchar(255) = CONCAT(N'rowrelay:', OBJECT_ID("+sqlserverLiteral(table, "")+"), N':', CONVERT(nvarchar(64), HASHBYTES('SHA2_256', "+a.add(key)+"), 2));",
			"DECLARE @got int;",
			"EXEC @got = sp_getapplock @Resource = @name, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;",
			"IF @got = -3 THROW "+strconv.Itoa(sqlserverKeyDeadlock)+", N'the lock of a message''s key was chosen as a deadlock''s victim', 1;",
			"IF @got < 0 THROW 50000, N'the lock of a message''s key was refused', 1"))
	}
	return queries
}

// sqlserverKeyDeadlock is the error of a deadlock that sp_getapplock returns as a
// number, where a row's would be error 1205.
const sqlserverKeyDeadlock = 51205

// Notify returns nothing: SQL Server can't wake another process.
func (sqlserver) Notify(Table) []Query { return nil }

func (d sqlserver) Written(table Table) Query {
	return d.read(&sqlserverArgs{}, "SELECT LOWER(CONVERT(nvarchar(36), message_id)), topic, message_key, payload,"+
		" CONVERT(bit, CASE WHEN payload IS NULL THEN 1 ELSE 0 END), payload_text, headers,"+
		" CONVERT(nvarchar(27), available_at, 121), priority FROM "+table.Messages()+" ORDER BY id")
}

// read lets a SELECT see one moment, and wait for no one. The level ends with the
// batch, also if it fails, where the batch has parameters: without any the driver
// sends it in a way that changes the session, which may be another's next.
func (d sqlserver) read(a *sqlserverArgs, lines ...string) Query {
	if len(a.list) == 0 {
		a.int(0)
	}
	lines = append([]string{"SET TRANSACTION ISOLATION LEVEL " + d.reading + ";"}, lines...)
	lines[len(lines)-1] += ";"
	return a.query(append(lines, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")...)
}

// sqlserverLiteral is the name of an object as OBJECT_ID takes it; there are no
// quotes and brackets in it that would have to be doubled.
func sqlserverLiteral(table Table, suffix string) string {
	name := "[" + table.Name() + suffix + "]'"
	if table.Schema() != "" {
		name = "[" + table.Schema() + "]." + name
	}
	return "N'" + name
}

func sqlserverQuery(lines ...string) Query {
	return Query{SQL: strings.Join(lines, "\n")}
}
