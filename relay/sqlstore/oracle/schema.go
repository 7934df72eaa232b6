package oracle

import (
	"embed"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed migrations
var migrations embed.FS

// schema returns the schema. It has no statement that checks whether the version table exists, because the
// name of this table in the catalog depends on how the table's name is written.
func schema() backend.Schema {
	return backend.Schema{
		Files: migrations, Scripts: true,
		Versions: func(table dialect.Table) backend.Versions {
			return backend.Versions{
				Create: "CREATE TABLE " + table.SchemaVersion + " (version_id NUMBER(19) NOT NULL PRIMARY KEY, is_applied NUMBER(1) NOT NULL," +
					" tstamp TIMESTAMP(6) DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL)",
				Argument: ":1", True: "1",
			}
		},
	}
}
