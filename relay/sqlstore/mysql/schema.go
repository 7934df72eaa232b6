package mysql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

//go:embed migrations
var migrations embed.FS

func schema() backend.Schema {
	return backend.Schema{
		Files: migrations, Quoted: dialect.Table.Backquoted,
		Lock: func(table dialect.Table) backend.SessionLock { return lock{table} },
		Versions: func(table dialect.Table) backend.Versions {
			return backend.Versions{
				Create:   "CREATE TABLE IF NOT EXISTS " + table.SchemaVersion + " (version_id bigint NOT NULL PRIMARY KEY, is_applied boolean NOT NULL, tstamp datetime NOT NULL DEFAULT (utc_timestamp())) ENGINE = InnoDB",
				Exists:   "SELECT count(*) > 0 FROM information_schema.tables WHERE table_schema = " + schemaOf(table) + " AND table_name = '" + table.Name + "_schema_version'",
				Argument: "?", True: "TRUE",
			}
		},
	}
}

// schemaOf returns an SQL expression for the table's schema, which by default is the connection's database.
func schemaOf(table dialect.Table) string {
	if table.Schema == "" {
		return "database()"
	}
	return "'" + table.Schema + "'"
}

// lock prevents several processes from creating and dropping the same tables
// concurrently. A transaction can't prevent this, because each CREATE or DROP commits
// immediately. The session holds the lock, and the server releases it when the session
// ends.
type lock struct{ table dialect.Table }

// name returns an SQL expression for the lock's name, which may have at most 64 characters.
func (l lock) name() string {
	return "left(concat('rowrelay ', sha2(concat(" + schemaOf(l.table) + ", '.', '" + l.table.Name + "'), 256)), 64)"
}

var errLocked = errors.New("another process has been migrating the same tables for a minute")

func (l lock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT get_lock("+l.name()+", 60)").Scan(&got); err != nil {
		return fmt.Errorf("wait for the lock of table %s: %w", l.table, err)
	}
	if !got.Bool {
		return errLocked
	}
	return nil
}

func (l lock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO release_lock("+l.name()+")")
	return err
}
