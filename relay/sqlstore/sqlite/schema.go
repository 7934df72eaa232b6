package sqlite

import (
	"embed"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed migrations
var migrations embed.FS

func schema() backend.Schema {
	return backend.Schema{
		Files: migrations, Begin: "BEGIN;", BusyHint: "open the file with a busy_timeout of 10000 ms",
		Versions: func(table dialect.Table) backend.Versions {
			within := ""
			if table.Schema != "" {
				within = ", '" + table.Schema + "'"
			}
			return backend.Versions{
				Create:   "CREATE TABLE " + table.SchemaVersion + " (version_id INTEGER PRIMARY KEY, is_applied INTEGER NOT NULL, tstamp TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)",
				Exists:   "SELECT EXISTS (SELECT 1 FROM pragma_table_info('" + table.Name + "_schema_version'" + within + "))",
				Argument: "?", True: "TRUE",
			}
		},
	}
}
