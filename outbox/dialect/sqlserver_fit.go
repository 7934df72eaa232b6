package dialect

import (
	"fmt"
	"strconv"
	"strings"
)

// Server asks for what every user may see.
func (sqlserver) Server() Query {
	return sqlserverQuery(
		"SELECT N'version', CONVERT(nvarchar(128), SERVERPROPERTY(N'ProductVersion'))",
		"UNION ALL SELECT N'edition', CONVERT(nvarchar(128), SERVERPROPERTY(N'EngineEdition'))",
		"UNION ALL SELECT N'database', DB_NAME()",
		"UNION ALL SELECT N'level', CONVERT(nvarchar(10), compatibility_level) FROM sys.databases WHERE name = DB_NAME()",
		"UNION ALL SELECT N'snapshot', CONVERT(nvarchar(10), snapshot_isolation_state) FROM sys.databases WHERE name = DB_NAME()",
		"UNION ALL SELECT N'read committed snapshot', CONVERT(nvarchar(10), is_read_committed_snapshot_on) FROM sys.databases WHERE name = DB_NAME()")
}

// Skipping reads by the index by which lanes are leased: what is locked in one
// index isn't met by a read of another one.
func (sqlserver) Skipping(table Table) *Trial {
	index := "INDEX(" + table.IndexName("lanes_fence") + ")"
	return &Trial{
		Begin: []Query{{SQL: "SET LOCK_TIMEOUT 1000"}},
		Hold:  sqlserverQuery("SELECT lane FROM " + table.Lanes() + " WITH (" + index + ", UPDLOCK, ROWLOCK) WHERE lane = 0"),
		Pass:  sqlserverQuery("SELECT lane FROM " + table.Lanes() + " WITH (" + index + ", UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE lane IN (0, 1)"),
		Want:  "1",
	}
}

// The editions of SERVERPROPERTY that are Azure's: their version says nothing.
var sqlserverAzure = map[string]string{"5": "Azure SQL Database", "8": "Azure SQL Managed Instance"}

const (
	sqlserverMajor = 13  // SQL Server 2016
	sqlserverLevel = 130 // has OPENJSON
)

// Fit wants reads that are of one moment and wait for no writer. A read that
// passes over locked rows would be of many moments: it may pass a row that isn't
// committed yet, and then meet a later one of the same key that was written
// after that commit.
func (d sqlserver) Fit(server Server) (Fit, error) {
	facts := server.Facts
	if err := sqlserverTooOld(facts); err != nil {
		return Fit{}, err
	}
	if !server.Skips {
		return Fit{}, fmt.Errorf("the server doesn't pass over locked rows (READPAST): it must be SQL Server or Azure SQL")
	}
	fit := Fit{Dialect: d}
	switch {
	case facts["read committed snapshot"] == "1":
		fit.Dialect = sqlserver{reading: "READ COMMITTED"}
	case facts["snapshot"] == "1":
		fit.Dialect = SQLServer()
	default:
		return Fit{}, fmt.Errorf("database %s gives no snapshots to readers: have its owner run ALTER DATABASE [%s] SET ALLOW_SNAPSHOT_ISOLATION ON, which changes nothing for others",
			facts["database"], facts["database"])
	}
	fit.Notes = []Note{{Name: "reading", OK: true, Detail: "at " + fit.Dialect.(sqlserver).reading + ", from row versions"}}
	return fit, nil
}

func sqlserverTooOld(facts map[string]string) error {
	major, _, _ := strings.Cut(facts["version"], ".")
	number, err := strconv.Atoi(major)
	if sqlserverAzure[facts["edition"]] == "" && (err != nil || number < sqlserverMajor) {
		return fmt.Errorf("the server is of version %q: SQL Server 2016 (version 13) or later is needed, or Azure SQL", facts["version"])
	}
	if level, err := strconv.Atoi(facts["level"]); err != nil || level < sqlserverLevel {
		return fmt.Errorf("database %s has compatibility level %q: 130 or higher is needed; have its owner run ALTER DATABASE [%s] SET COMPATIBILITY_LEVEL = 130",
			facts["database"], facts["level"], facts["database"])
	}
	return nil
}
