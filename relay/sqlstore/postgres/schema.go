package postgres

import (
	"embed"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed migrations
var migrations embed.FS

//go:embed notify.sql
var notify string

func schema() backend.Schema {
	return backend.Schema{
		Files: migrations, Begin: "BEGIN;", Notify: notify,
		MakeSchema: func(table dialect.Table) string {
			if table.Schema == "public" {
				return ""
			}
			return "-- The tables get their own schema, which tools that compare an application's models with its tables don't see.\nCREATE SCHEMA IF NOT EXISTS " + strings.TrimSuffix(table.Beside(""), ".") + ";"
		},
		Versions: func(table dialect.Table) backend.Versions {
			return backend.Versions{
				Create:   "CREATE TABLE " + table.SchemaVersion + " (version_id bigint NOT NULL PRIMARY KEY, is_applied boolean NOT NULL, tstamp timestamptz NOT NULL DEFAULT now())",
				Exists:   "SELECT to_regclass('" + table.SchemaVersion + "') IS NOT NULL",
				Argument: "$1", True: "TRUE",
			}
		},
	}
}
