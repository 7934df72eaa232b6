package migrations

import (
	"fmt"

	"github.com/pressly/goose/v3/database"
	goosedialect "github.com/pressly/goose/v3/database/dialect"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// versionStore keeps goose's own statements, save that a version is unique: of
// two processes that apply a step at the same time the second one fails and
// takes its whole transaction back. So no lock is needed that a session, or a
// pooler between, would have to keep.
func versionStore(d dialect.Dialect, table dialect.Table) (database.Store, error) {
	switch d.Name() {
	case "oracle":
		return newOracleVersions(d.(dialect.Repeating), table.SchemaVersion)
	case "mysql", "mariadb":
		return newMySQLStore(table)
	case "postgres":
		return database.NewStoreFromQuerier(table.SchemaVersion, versions{
			create: `CREATE TABLE %s (version_id bigint NOT NULL PRIMARY KEY, is_applied boolean NOT NULL, tstamp timestamptz NOT NULL DEFAULT now())`,
			exists: `SELECT to_regclass('` + table.SchemaVersion + `') IS NOT NULL`,
			place:  [2]string{"$1", "$2"},
		})
	case "sqlite":
		return database.NewStoreFromQuerier(table.SchemaVersion, versions{
			create: `CREATE TABLE %s (version_id INTEGER PRIMARY KEY, is_applied INTEGER NOT NULL, tstamp TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)`,
			exists: `SELECT EXISTS (SELECT 1 FROM pragma_table_info('` + table.Name + `_schema_version'` + schemaArgument(table) + `))`,
			place:  [2]string{"?", "?"},
		})
	case "sqlserver":
		return database.NewStoreFromQuerier(table.SchemaVersion, versions{
			create: `CREATE TABLE %s (version_id bigint NOT NULL PRIMARY KEY, is_applied bit NOT NULL, tstamp datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME())`,
			exists: `SELECT CONVERT(bit, CASE WHEN OBJECT_ID(N'` + bracketed(table) + `', N'U') IS NULL THEN 0 ELSE 1 END)`,
			place:  [2]string{"@p1", "@p2"},
		})
	default:
		return nil, fmt.Errorf("there are no migrations for %s", d.Name())
	}
}

// versions are the statements on goose's table.
type versions struct {
	create string // with %s for the table's name
	exists string
	place  [2]string
}

var _ goosedialect.QuerierExtender = versions{}

func (v versions) CreateTable(table string) string { return fmt.Sprintf(v.create, table) }
func (v versions) TableExists(string) string       { return v.exists }

func (v versions) InsertVersion(table string) string {
	return "INSERT INTO " + table + " (version_id, is_applied) VALUES (" + v.place[0] + ", " + v.place[1] + ")"
}

func (v versions) DeleteVersion(table string) string {
	return "DELETE FROM " + table + " WHERE version_id = " + v.place[0]
}

func (v versions) GetMigrationByVersion(table string) string {
	return "SELECT tstamp, is_applied FROM " + table + " WHERE version_id = " + v.place[0]
}

func (v versions) ListMigrations(table string) string {
	return "SELECT version_id, is_applied FROM " + table + " ORDER BY version_id DESC"
}

func (v versions) GetLatestVersion(table string) string {
	return "SELECT max(version_id) FROM " + table
}

func schemaArgument(table dialect.Table) string {
	if table.Schema == "" {
		return ""
	}
	return ", '" + table.Schema + "'"
}

// bracketed is the name of the version table as OBJECT_ID takes it.
func bracketed(table dialect.Table) string {
	name := "[" + table.Name + "_schema_version]"
	if table.Schema == "" {
		return name
	}
	return "[" + table.Schema + "]." + name
}
