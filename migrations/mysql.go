package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func isMySQL(name string) bool {
	return name == "mysql" || name == "mariadb"
}

// mysqlStore reads no times, so that it doesn't matter whether a driver makes
// times of them.
type mysqlStore struct {
	database.StoreExtender
	table dialect.Table
}

func newMySQLStore(table dialect.Table) (database.Store, error) {
	store, err := database.NewStoreFromQuerier(table.SchemaVersion, versions{
		create: "CREATE TABLE IF NOT EXISTS %s (version_id bigint NOT NULL PRIMARY KEY, is_applied boolean NOT NULL, tstamp datetime NOT NULL DEFAULT (utc_timestamp())) ENGINE = InnoDB",
		exists: "SELECT count(*) > 0 FROM information_schema.tables WHERE table_schema = " + mysqlSchema(table) + " AND table_name = '" + table.Name + "_schema_version'",
		place:  [2]string{"?", "?"},
	})
	if err != nil {
		return nil, err
	}
	return mysqlStore{store.(database.StoreExtender), table}, nil
}

func (s mysqlStore) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	var applied bool
	err := db.QueryRowContext(ctx, "SELECT is_applied FROM "+s.table.SchemaVersion+" WHERE version_id = ?", version).Scan(&applied)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, database.ErrVersionNotFound
	}
	return &database.GetMigrationResult{IsApplied: applied}, err
}

// mysqlSchema is the name as a text, or that of the connection.
func mysqlSchema(table dialect.Table) string {
	if table.Schema == "" {
		return "database()"
	}
	return "'" + table.Schema + "'"
}

// mysqlLock keeps processes from making and dropping the same tables at once:
// each statement that does so commits by itself. It belongs to its session, and
// ends with it.
type mysqlLock struct{ table dialect.Table }

// name fits the 64 characters that a lock's name has.
func (l mysqlLock) name() string {
	return "left(concat('rowrelay ', sha2(concat(" + mysqlSchema(l.table) + ", '.', '" + l.table.Name + "'), 256)), 64)"
}

var errLocked = errors.New("another process has been migrating the same tables for a minute")

func (l mysqlLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT get_lock("+l.name()+", 60)").Scan(&got); err != nil {
		return fmt.Errorf("wait for the lock of table %s: %w", l.table, err)
	}
	if !got.Bool {
		return errLocked
	}
	return nil
}

func (l mysqlLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "DO release_lock("+l.name()+")")
	return err
}
