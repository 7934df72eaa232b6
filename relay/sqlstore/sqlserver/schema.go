package sqlserver

import (
	"embed"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed migrations
var migrations embed.FS

// schema returns the schema. Each printed step runs in one transaction, which is rolled back if any statement fails.
func schema() backend.Schema {
	return backend.Schema{
		Files: migrations, Scripts: true, Begin: "SET QUOTED_IDENTIFIER ON;\nSET XACT_ABORT ON;\nBEGIN TRANSACTION;",
		Versions: func(table dialect.Table) backend.Versions {
			return backend.Versions{
				Create:   "CREATE TABLE " + table.SchemaVersion + " (version_id bigint NOT NULL PRIMARY KEY, is_applied bit NOT NULL, tstamp datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME())",
				Exists:   "SELECT CONVERT(bit, CASE WHEN OBJECT_ID(N'" + bracketed(table) + "', N'U') IS NULL THEN 0 ELSE 1 END)",
				Argument: "@p1", True: "1",
			}
		},
	}
}

// bracketed returns the name of the version table in the form that OBJECT_ID accepts.
func bracketed(table dialect.Table) string {
	name := "[" + table.Name + "_schema_version]"
	if table.Schema == "" {
		return name
	}
	return "[" + table.Schema + "]." + name
}
